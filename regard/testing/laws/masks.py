"""Masks: the future, absent tokens and pairs that are cut are not felt, and who may see nothing gets exactly zero."""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import partial
from itertools import product

import torch
from torch import Tensor, nn

from regard.core import CAUSAL, TensorMap
from regard.testing.laws.streaming import require_streamed
from regard.testing.subject import (
    B,
    NotDeclared,
    Request,
    S,
    Subject,
    T,
    Tensors,
    cut,
    require,
    require_close,
    require_same,
    results,
)

PLACES = (1, 4, 6, 9, T - 1)
SCALES = (1.0, 30.0)
LENGTH, FAR = 1103, (300, 1102)  # past the first chunk, and the last token
PADDING_BOUNDS = ((torch.float64, 1e-10), (torch.float32, 1e-6))
LAYOUTS = ("right", "left", "interior", "both sides")
POISONS = (0.0, float("inf"), float("nan"), 1e30)


def causality(subject: Subject) -> None:
    """With `causal`, outputs before t depend on nothing from t on: not under perturbation, not under truncation.

    In tiny blocks at each mask, in training, and behind the borders of the blocks and chunks that users get. Over a context the last
    query is aligned to the last key.
    """
    subject.require_declared("causal")
    mixer = subject.make()
    x = subject.x
    for request in subject.requests():
        if not request.mask.causal or request.context is not None:
            continue
        call = partial(request.of_many, mixer)
        _before_is_the_same(subject, call, x, product(PLACES, SCALES), request.label)
        y = request(mixer, x)
        for t in PLACES:
            short = mixer(x[:, :t], mask=cut(request.mask, slice(t)))
            require_close(short, y[:, :t], 1e-9, f"{request.label}: truncated to {t}")
    causal = Request("causal", CAUSAL)
    with torch.no_grad():
        own = subject.make(blocks="own", max_len=LENGTH)
        far = subject.tokens(1, LENGTH)
        call = partial(causal.of_many, own)
        _before_is_the_same(subject, call, far, product(FAR, (30,)), f"{LENGTH} tokens")
    trained = subject.make().train()

    def seeded(xs: list[Tensor]) -> Iterator[Tensor]:
        """What is added in training may not look ahead either."""
        for z in xs:
            torch.manual_seed(0)
            yield causal(trained, z)

    with torch.random.fork_rng(devices=[]):
        _before_is_the_same(subject, seeded, x, product((1, 6, T - 1), (1,)), "in training")
    if subject.can.cross:
        call = partial(causal.of_many, mixer, [x])
        context = subject.tokens(B, S, seed=7)
        changes = product(range(S), (30,))
        _before_is_the_same(subject, call, context, changes, "cross causal", behind=T - S)


def _before_is_the_same(
    subject: Subject,
    call: Callable[[list[Tensor]], Iterable[Tensor]],
    x: Tensor,
    changes: Iterable[tuple[int, float]],
    label: str,
    *,
    behind: int = 0,
) -> None:
    """call(inputs) gives their outputs; after a change of x from t on, those of queries before t + behind are what they were."""
    made = list(changes)
    moved = [x]
    for t, scale in made:
        moved.append(x.clone())
        moved[-1][:, t:] += scale * subject.tokens(len(x), x.shape[1] - t, seed=t)
    y, *found = call(moved)
    for (t, scale), after in zip(made, found, strict=True):
        first = t + behind
        require_close(
            after[:, :first],
            y[:, :first],
            1e-11,
            f"{label}: outputs before {first} after a change of scale {scale:g} from {t} on",
        )


def padding(subject: Subject) -> None:
    """Padding is as if absent, whatever its content, amount and side; outputs at invalid positions are exactly zero.

    In a stream too: tokens that were absent leave no trace in the state, and what comes after them is what it is without them.
    """
    subject.require_declared("padding")
    layouts = [case for case in product(LAYOUTS, (2, 5)) if T + case[1] <= subject.longest]
    for (dtype, bound), order in product(PADDING_BOUNDS, subject.orders()):
        mixer = subject.make(dtype)
        x, context = (subject.tokens(B, T, seed=seed, dtype=dtype) for seed in (0, 3))
        alone = order(mixer, x)
        over = replace(order, context=context)(mixer, x) if subject.can.cross else None
        for layout, amount in layouts:
            columns, valid = _place(layout, amount)
            noise = subject.tokens(B, T + amount, seed=amount, dtype=dtype)
            request = order.but(f"{layout} padding by {amount}, {dtype}", valid=valid)

            def padded(z: Tensor, columns=columns, noise=noise) -> list[Tensor]:
                return [(content * noise).index_copy(1, columns, z) for content in (0.0, 3.0)]

            for y in request.of_many(mixer, padded(x)):
                require_close(y[:, columns], alone, bound, request.label)
                zero = (y[~valid] == 0).all()
                require(zero, f"{request.label}: an output at an invalid position is not zero")
            if over is not None:
                for y in request.of_many(mixer, [x], padded(context)):
                    require_close(y, over, bound, f"cross, {request.label}")
    after = 4 if subject.streams else 0
    if subject.can.causal and subject.can.streaming and T + 5 + after <= subject.longest:
        mixer = subject.make()
        x = subject.tokens(B, T + 5 + after)
        for layout in LAYOUTS:
            _, valid = _place(layout, 5)
            valid = nn.functional.pad(valid, (0, after), value=True)
            with torch.no_grad():
                chunks = (T + 5, after) if after else (T + 5,)
                require_streamed(mixer, x, chunks, f"extend, {layout} padding", valid=valid)


def _place(layout: str, amount: int) -> tuple[Tensor, Tensor]:
    """Columns of the padded row that hold the T tokens, and `valid` [B T+amount]."""
    columns = torch.arange(T)
    before: dict[str, Tensor | int] = {
        "right": 0,
        "left": amount,
        "interior": amount * (columns > T // 2),
        "both sides": amount // 2,
    }
    columns += before[layout]
    return columns, torch.zeros(B, T + amount, dtype=torch.bool).index_fill(1, columns, True)


def poison(subject: Subject) -> None:
    """NaN, Inf and 1e30 where `valid` is False reach no valid output and no gradient."""
    subject.require_declared("padding")
    mixer = subject.make()
    x = subject.x
    for request in subject.requests():
        if (valid := request.mask.valid) is not None:
            clean = x if request.context is None else request.context

            def call(z: Tensor, request: Request = request) -> Tensor:
                if request.context is None:
                    return request(mixer, z)
                return replace(request, context=z)(mixer, x)

            is_not_poisoned(call, mixer, clean, valid, f"{request.label}: ")


def is_not_poisoned(
    call: TensorMap, module: nn.Module, clean: Tensor, valid: Tensor, label: str = ""
) -> None:
    """The law of poison for call(tokens), which uses the module's parameters."""
    first: Tensors = {}
    for poison in POISONS:
        tokens = clean.detach().masked_fill(~valid[..., None], poison).requires_grad_()
        found = results(module, call(tokens), tokens=tokens)
        reached = (found["gradient of tokens"][~valid] != 0).any()
        require(not reached, f"{label}a gradient reaches a token that is absent")
        first = first or found  # what is not finite is not near itself
        require_same(found, first, 0.0, f"{label}{poison} at an absent token")


def empty(subject: Subject) -> None:
    """A query that may see nothing gives exactly zero, with finite gradients."""
    if not (subject.can.padding or subject.can.pairwise or subject.can.cross):
        raise NotDeclared(
            "every query sees something: padding, pairwise and cross are declared a No"
        )
    mixer = subject.make()
    x = subject.x
    for request in _blinding(subject):
        keys = T if request.context is None else S
        blind = ~request.mask.dense(T, keys).expand(B, -1, T, keys).any(-1).any(1)
        is_zero_and_finite(request.results(mixer, x), blind, f"{request.label}: ")


def _blinding(subject: Subject) -> Iterator[Request]:
    valid = torch.arange(B)[:, None] > 0
    pairwise = torch.ones(B, 1, T, T, dtype=torch.bool)
    pairwise[1, 0, 3] = pairwise[0, 0, -1] = False
    for order in subject.orders():
        if subject.can.padding:
            yield order.but("no valid token", valid=valid.expand(B, T))
        if subject.can.pairwise:
            yield order.but("no allowed pair", pairwise=pairwise)
        if subject.can.cross:
            over = replace(order, context=subject.tokens(B, S, seed=7).requires_grad_())
            if subject.can.padding:
                yield over.but("empty context", valid=valid.expand(B, S))
            if order.mask.causal:
                yield over.but("queries before the context")


def is_zero_and_finite(found: Tensors, blind: Tensor, label: str = "") -> None:
    require((found["output"][blind] == 0).all(), f"{label}what sees nothing is not exactly zero")
    for name, value in found.items():
        require(value.isfinite().all(), f"{label}{name} is not finite")
