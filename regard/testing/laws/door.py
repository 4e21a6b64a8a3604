"""The door: what is refused, and what is not, every length and every batch, of which no row knows another."""

from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves, tree_map

from regard.core import RegardError, ShapeError, UnsupportedError
from regard.testing.subject import B, S, Subject, T, require, require_close, results

LENGTHS = (1, 2, 3, 5, 7, 8, 11, 16, 17, 31, 64)
Call = Callable[[], object]
Calls = dict[str, Call]


def refusals(subject: Subject) -> None:
    """Every declared no raises UnsupportedError with its reason; shapes and types that do not fit are named."""
    mixer = subject.make()
    x = subject.x
    mask = subject.mask
    pairwise = torch.ones(1, 1, T, T, dtype=torch.bool)
    marks = torch.ones(B, T, dtype=torch.bool)

    def masked(**fields: object) -> Call:
        return lambda: mixer(x, mask=replace(mask, **fields))  # type: ignore[arg-type]

    asks = {
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
            refused(
                asks[name],
                UnsupportedError,
                f"what is declared a No, {name},",
                reason,
                subject.name,
            )
    unfit: Calls = {
        "x": lambda: mixer(x[..., :-1], mask=mask),
        "at least one token": lambda: mixer(x[:, :0], mask=mask),
        "floating": lambda: mixer(x.long(), mask=mask),
        "mask": lambda: mixer(x, mask=marks),  # type: ignore[arg-type]
    }
    if subject.can.padding:
        unfit["mask.valid"] = masked(valid=marks[:, :-1])
        unfit["boolean"] = masked(valid=marks.float())
    if subject.can.pairwise:
        unfit["mask.pairwise"] = masked(pairwise=pairwise[..., :-1])
    if subject.can.cross:
        unfit["context"] = lambda: mixer(x, context=subject.tokens(B + 1, S), mask=mask)
    if subject.streams:
        unfit["batch"] = lambda: mixer.extend(x, mixer.initial_state(B + 1))
        unfit["initial_state"] = lambda: mixer.extend(x, None)
    for word, call in unfit.items():
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


def batch(subject: Subject) -> None:
    """A row alone gives what it gives in a batch of 2, 7 or 64; in training, of equal seeds, another row beside it changes nothing."""
    mixer = subject.make()
    trained = subject.make().train()
    x = subject.tokens(64, T)
    for order in subject.orders():
        alone = order(mixer, x[:1])
        for size in (2, 7, 64):
            got = order(mixer, x[:size].roll(size // 2, 0))[size // 2]
            require_close(got, alone[0], 1e-10, f"{order.label}: a row in a batch of {size}")
        found = []
        with torch.random.fork_rng(devices=[]):
            for other in (1, 2):
                torch.manual_seed(0)
                found.append(order(trained, x[[0, other]])[0])
        require_close(
            found[0], found[1], 1e-10, f"{order.label}: a row beside another, in training"
        )


def lengths(subject: Subject) -> None:
    """Every length works: one, primes, shorter than a window, no multiple of a block; beyond `max_len` is refused."""
    mixer = subject.make()
    longest = min(subject.longest, LENGTHS[-1])
    x = subject.tokens(B, longest)
    for order in subject.orders():
        full = order(mixer, x)
        for length in LENGTHS:
            if length > longest:
                continue
            y = order(mixer, x[:, :length])
            fine = y.shape == (B, length, subject.dim) and y.isfinite().all()
            require(fine, f"length {length}: shape {list(y.shape)}, or not finite")
            if order.mask.causal:
                what = f"length {length}: not the prefix of length {longest}"
                require_close(y, full[:, :length], 1e-9, what)
    if subject.longest == 10**9:
        length = 2 * (mixer.max_len or LENGTHS[-1]) + 1
        y = mixer(subject.tokens(1, length), mask=subject.mask)
        what = f"any length is declared, and {length} gives values that are not finite"
        return require(y.isfinite().all(), what)
    too_long = subject.tokens(1, subject.longest + 1)
    calls: Calls = {"forward": lambda: mixer(too_long, mask=subject.mask)}
    if subject.streams:
        calls["extend"] = lambda: mixer.extend(too_long, mixer.initial_state(1))
    for name, call in calls.items():
        refused(call, ShapeError, f"{name} of {subject.longest + 1} tokens", "max_len")


def empty_batch(subject: Subject) -> None:
    """An empty batch is a valid batch: shapes are as for any other, gradients zero, and nothing is learned from it."""
    mixer = subject.make(blocks="own").train()
    x = subject.tokens(0, T).requires_grad_()
    for request in subject.requests(rows=0):
        learns_nothing(mixer, x, request(mixer, x), x.shape, request.label)
        for weights in (True, False):
            rows = [len(z) for z in request(mixer.observe, x, weights=weights) if z is not None]
            require(not any(rows), f"{request.label}: an observation has rows: {rows}")
    untouched = subject.make(blocks="own").train()
    mixer.after_step()
    untouched.after_step()
    for name, value in untouched.state_dict().items():
        require(torch.equal(value, mixer.state_dict()[name]), f"{name} changed")
    if subject.can.streaming:
        none = mixer.initial_state(0)
        for n in (1, 5, T - 6):
            x = subject.tokens(0, n).requires_grad_()
            y, none = mixer.extend(x, none)
            learns_nothing(mixer, x, y, x.shape, f"extend by {n}")
            require(not any(map(len, tree_leaves(none))), f"extend by {n}: the state has rows")
            none = tree_map(Tensor.detach, none)
        if subject.can.padding:
            mixer.extend(x, none, valid=torch.ones(0, n, dtype=torch.bool))
    if subject.can.cross and subject.streams:
        context = subject.tokens(0, S)
        for given in (None, torch.ones(0, S, dtype=torch.bool)) if subject.can.padding else (None,):
            y, _ = mixer.extend(x, mixer.initial_state(0, context=context, valid=given))
            require(y.shape == x.shape, f"extend over a context: shape {list(y.shape)}")


def learns_nothing(
    module: nn.Module, x: Tensor, y: Tensor, shape: torch.Size, label: str = "the output"
) -> None:
    """The output y for an empty batch x has this shape, and gradients of zero."""
    require(y.shape == shape, f"{label}: shape {list(y.shape)}, not {list(shape)}")
    require(y.requires_grad, f"{label} has no gradient")
    gradients = [z for name, z in results(module, y, x=x).items() if name != "output"]
    require(not any(z.any() for z in gradients), f"{label}: a gradient is not zero")
