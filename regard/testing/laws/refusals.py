"""Every declared no raises UnsupportedError with its reason; shapes and types that do not fit are named."""

from collections.abc import Callable

import torch

from regard.core import Mask, RegardError, ShapeError, UnsupportedError
from regard.testing.subject import B, S, Subject, T, require


def law(subject: Subject) -> None:
    mixer = subject.make()
    x, causal = subject.tokens(B, T), not subject.can.bidirectional
    pairwise = torch.ones(1, 1, T, T, dtype=torch.bool)
    marks = torch.ones(B, T, dtype=torch.bool)
    asks: dict[str, Callable[[], object]] = {
        "causal": lambda: mixer(x, mask=Mask(causal=True)),
        "bidirectional": lambda: mixer(x),
        "padding": lambda: mixer(x, mask=Mask(causal=causal, valid=marks)),
        "pairwise": lambda: mixer(x, mask=Mask(causal=causal, pairwise=pairwise)),
        "global_tokens": lambda: mixer(x, mask=Mask(causal=causal, global_tokens=marks)),
        "cross": lambda: mixer(x, context=subject.tokens(B, S), mask=Mask(causal=causal)),
        "streaming": lambda: mixer.initial_state(B),
        "attention_map": lambda: mixer.attention_map(x, mask=Mask(causal=causal)),
    }
    for name, reason in subject.can.refusals().items():
        if name in asks:
            text = _error(asks[name], UnsupportedError, f"{name} is declared a No and accepted")
            require(
                reason in text and subject.name in text,
                f"the refusal of {name} does not say why: {text}",
            )
    unfit: dict[str, Callable[[], object]] = {
        "x": lambda: mixer(x[..., :-1], mask=Mask(causal=causal)),
        "at least one token": lambda: mixer(x[:, :0], mask=Mask(causal=causal)),
        "floating": lambda: mixer(x.long(), mask=Mask(causal=causal)),
        "mask": lambda: mixer(x, mask=marks),  # type: ignore[arg-type]
    }
    if subject.can.padding:
        unfit["mask.valid"] = lambda: mixer(x, mask=Mask(causal=causal, valid=marks[:, :-1]))
        unfit["boolean"] = lambda: mixer(x, mask=Mask(causal=causal, valid=marks.float()))
    if subject.can.pairwise:
        unfit["mask.pairwise"] = lambda: mixer(
            x, mask=Mask(causal=causal, pairwise=pairwise[..., :-1])
        )
    if subject.can.cross:
        unfit["context"] = lambda: mixer(
            x, context=subject.tokens(B + 1, S), mask=Mask(causal=causal)
        )
    if subject.can.streaming == "exact":
        unfit["batch"] = lambda: mixer.extend(x, mixer.initial_state(B + 1))
        unfit["initial_state"] = lambda: mixer.extend(x, None)
    for word, call in unfit.items():
        text = _error(call, ShapeError, f"an unfit request ({word}) is accepted")
        require(word in text, f"the error does not name {word!r}: {text}")


def _error(call: Callable[[], object], kind: type[RegardError], otherwise: str) -> str:
    try:
        call()
    except kind as error:
        return str(error)
    require(False, otherwise)
    raise AssertionError
