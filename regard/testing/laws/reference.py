"""Outputs and all gradients equal the oracle's, for every declared mask and context, alone and together."""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.core import Mixer
from regard.testing.subject import (
    B,
    LawError,
    Request,
    Subject,
    T,
    gradients,
    require_close,
    tensors,
)

LOW_PRECISION = (torch.float32, torch.bfloat16)
ULPS = 8
DRAWS = range(3)


def law(subject: Subject) -> None:
    if subject.oracle is None:
        return
    mixer = subject.make()
    for request in subject.requests():
        x = subject.tokens(B, T).requires_grad_()
        if request.context is not None:
            request = Request(request.label, request.mask, request.context.clone().requires_grad_())
        leaves = [leaf for leaf in (x, request.context, *mixer.parameters()) if leaf is not None]
        names = (
            ["x"]
            + ["context"] * (request.context is not None)
            + [name for name, _ in mixer.named_parameters()]
        )
        y = request(mixer, x)
        expected, _ = subject.consult(mixer, request, x)
        require_close(y, expected, 1e-10, f"{request.label}: output")
        pairs = zip(names, gradients(y, leaves), gradients(expected, leaves), strict=True)
        for name, ours, theirs in pairs:
            require_close(ours, theirs, 1e-10, f"{request.label}: gradient of {name}")
    for dtype in LOW_PRECISION:
        _low_precision(subject, dtype)


def _low_precision(subject: Subject, dtype: torch.dtype) -> None:
    """The worst element is within twice the error of the oracle computed in the same type, plus a few ulp.

    Worst over several draws on both sides, since one draw of a rounding error says little.
    """
    labels = ("plain", "causal", "cross", "interior padding", "causal interior padding")
    for request in subject.requests(dtype=dtype):
        if request.label not in labels:
            continue
        ours, naive, size = (
            torch.stack(column).max()
            for column in zip(*_errors(subject, request, dtype), strict=True)
        )
        allowed = 2 * naive + ULPS * torch.finfo(dtype).eps * size
        if not ours <= allowed:
            raise LawError(f"{request.label} in {dtype}: error {ours:.2e}, allowed {allowed:.2e}")


def _errors(
    subject: Subject, request: Request, dtype: torch.dtype
) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Our error, the naive error, and the largest true value, for each draw of parameters and tokens."""
    for seed in DRAWS:
        mixer = subject.make(dtype, seed)
        exact = subject.make(dtype, seed).double()
        x = subject.tokens(B, T, seed=seed, dtype=dtype)
        with torch.no_grad():
            ours = request(mixer, x).double()
            naive, _ = subject.consult(mixer, request, x)
            truth = _in_double(subject, mixer, exact, request, x)
        yield (ours - truth).abs().max(), (naive.double() - truth).abs().max(), truth.abs().max()


def _in_double(subject: Subject, mixer: Mixer, exact: Mixer, request: Request, x: Tensor) -> Tensor:
    assert subject.oracle is not None
    plan = mixer.plan(x, context=request.context, mask=request.mask)
    mask = request.mask
    truth, _ = subject.oracle(
        tensors(exact),
        exact.options,
        x.double(),
        context=None if request.context is None else request.context.double(),
        causal=mask.causal,
        valid=mask.valid,
        pairwise=mask.pairwise,
        global_tokens=mask.global_tokens,
        plan=None
        if plan is None
        else {k: v.double() if v.is_floating_point() else v for k, v in plan.items()},
    )
    return truth
