"""Every declared no raises UnsupportedError with its reason; shapes and types that do not fit are named."""

from collections.abc import Callable
from dataclasses import replace

import torch

from regard.core import RegardError, ShapeError, UnsupportedError
from regard.testing.subject import B, S, Subject, T, require

Call = Callable[[], object]


def refusals(subject: Subject) -> None:
    """Every declared no raises UnsupportedError with its reason; shapes and types that do not fit are named."""
    mixer, x, mask = subject.make(), subject.tokens(B, T), subject.mask
    pairwise = torch.ones(1, 1, T, T, dtype=torch.bool)
    marks = torch.ones(B, T, dtype=torch.bool)

    def masked(**fields: object) -> Call:
        return lambda: mixer(x, mask=replace(mask, **fields))  # type: ignore[arg-type]

    asks: dict[str, Call] = {
        "causal": masked(causal=True),
        "bidirectional": masked(causal=False),
        "padding": masked(valid=marks),
        "pairwise": masked(pairwise=pairwise),
        "global_tokens": masked(global_tokens=marks),
        "cross": lambda: mixer(x, context=subject.tokens(B, S), mask=mask),
        "streaming": lambda: mixer.initial_state(B),
        "attention_map": lambda: mixer.attention_map(x, mask=mask),
    }
    for name, reason in subject.can.refusals().items():
        if name in asks:
            what = f"what is declared a No, {name},"
            refused(asks[name], UnsupportedError, what, reason, subject.name)
    unfit: dict[str, tuple[object, Call]] = {
        "x": (True, lambda: mixer(x[..., :-1], mask=mask)),
        "at least one token": (True, lambda: mixer(x[:, :0], mask=mask)),
        "floating": (True, lambda: mixer(x.long(), mask=mask)),
        "mask": (True, lambda: mixer(x, mask=marks)),  # type: ignore[arg-type]
        "mask.valid": (subject.can.padding, masked(valid=marks[:, :-1])),
        "boolean": (subject.can.padding, masked(valid=marks.float())),
        "mask.pairwise": (subject.can.pairwise, masked(pairwise=pairwise[..., :-1])),
        "context": (
            subject.can.cross,
            lambda: mixer(x, context=subject.tokens(B + 1, S), mask=mask),
        ),
        "batch": (
            subject.can.streaming == "exact",
            lambda: mixer.extend(x, mixer.initial_state(B + 1)),
        ),
        "initial_state": (subject.can.streaming == "exact", lambda: mixer.extend(x, None)),
    }
    for word, (able, call) in unfit.items():
        if able:
            refused(call, ShapeError, "an unfit request", word)


def refused(call: Call, kind: type[RegardError], what: str, *words: str) -> None:
    """The call raises an error of this kind, whose text has the words."""
    try:
        call()
    except kind as error:
        missing = [word for word in words if word not in str(error)]
        require(not missing, f"the error of {what} does not say {missing}: {error}")
    else:
        require(False, f"{what} is accepted (expected to read of {', '.join(words)})")
