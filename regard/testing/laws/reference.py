"""Outputs and all gradients equal the oracle's, for every declared mask and context, alone and together."""

from statistics import median

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
OUTPUT = "output"


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
    """The worst element, of outputs and of each gradient, is within twice the error of the oracle computed in the same
    type, plus a few ulp of the largest output, or of the largest of all gradients: what vanishes does so in sums.

    Worst over several draws on both sides, since one draw of a rounding error says little; of our gradients the median,
    since a unit that rounding brings to the other side of zero has another gradient.
    """
    labels = ("plain", "causal", "cross", "interior padding", "causal interior padding")
    eps = torch.finfo(dtype).eps
    for request in subject.requests(dtype=dtype):
        if request.label not in labels:
            continue
        draws = [_errors(subject, request, dtype, seed) for seed in DRAWS]
        by_name = {
            name: list(zip(*(draw[name] for draw in draws), strict=True)) for name in draws[0]
        }
        steepest = max(max(size) for name, (_, _, size) in by_name.items() if name != OUTPUT)
        for name, (ours, naive, size) in by_name.items():
            is_output = name == OUTPUT
            error = max(ours) if is_output or torch.inf in ours else median(ours)
            allowed = 2 * max(naive) + ULPS * eps * (max(size) if is_output else steepest)
            if not error <= allowed < torch.inf:  # an oracle that gives no number allows none
                raise LawError(
                    f"{request.label} in {dtype}: {name}: error {error:.2e}, allowed {allowed:.2e}"
                )


def _errors(
    subject: Subject, request: Request, dtype: torch.dtype, seed: int
) -> dict[str, tuple[float, float, float]]:
    """Our error, the naive error, and the largest true value, of the output and of every gradient."""
    mixer = subject.make(dtype, seed)
    exact = subject.make(dtype, seed).double()
    x = subject.tokens(B, T, seed=seed, dtype=dtype).requires_grad_()
    wide = x.detach().double().requires_grad_()
    results = []
    for y, leaves in (
        (request(mixer, x), [x, *mixer.parameters()]),
        (subject.consult(mixer, request, x)[0], [x, *mixer.parameters()]),
        (_in_double(subject, mixer, exact, request, x, wide), [wide, *exact.parameters()]),
    ):
        found = gradients(y, leaves, like=dtype)
        results.append([z.detach().double() for z in (y, *found)])
    names = [
        OUTPUT,
        "gradient of x",
        *(f"gradient of {name}" for name, _ in mixer.named_parameters()),
    ]
    return {
        name: (_largest(ours - truth), _largest(naive - truth), _largest(truth))
        for name, ours, naive, truth in zip(names, *results, strict=True)
    }


def _largest(z: Tensor) -> float:
    """What is not a number is larger than all numbers, whatever is made of several."""
    return z.abs().nan_to_num(torch.inf, posinf=torch.inf).max().item() if z.numel() else 0.0


def _in_double(
    subject: Subject, mixer: Mixer, exact: Mixer, request: Request, x: Tensor, wide: Tensor
) -> Tensor:
    """Of the structure that the mixer really uses."""
    assert subject.oracle is not None
    plan = mixer.plan(x, context=request.context, mask=request.mask)
    mask = request.mask
    truth, _ = subject.oracle(
        tensors(exact),
        exact.options,
        wide,
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
