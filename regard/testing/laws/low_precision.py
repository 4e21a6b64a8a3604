"""Outputs and gradients in float32 and bfloat16 are near our own float64 form, which `reference` proves.

Allowed is AMPLIFIED times what a relative perturbation of eps of inputs and parameters does to the float64 form, plus a
few ulp of the largest output, or of the largest of all gradients: what vanishes does so in sums.

Worst over several draws on both sides, since one draw of a rounding error says little; of our gradients the median,
since a unit that rounding brings to the other side of zero has another gradient.
"""

from copy import deepcopy
from itertools import islice
from statistics import median

import torch
from torch import Tensor

from regard.core import Mixer
from regard.testing.subject import B, LawError, Request, Subject, T, gradients

LABELS = ("plain", "causal", "cross", "interior padding", "causal interior padding")
DRAWS = 3  # of parameters and inputs
MOST_DRAWS = 12  # where rounding chooses other structure (hashes, clusters) than float64 does
STEPS = 2  # perturbations of each draw
AMPLIFIED = 8  # what rounding within may do, in units of a perturbation of inputs and parameters
ULPS = 8
OUTPUT = "output"


def law(subject: Subject) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        _in(dtype, subject)


def _in(dtype: torch.dtype, subject: Subject) -> None:
    eps = torch.finfo(dtype).eps
    requests = [r for r in subject.requests(dtype=dtype) if r.label in LABELS]
    for request in requests:
        drawn = (_errors(subject, request, dtype, seed) for seed in range(MOST_DRAWS))
        draws = list(islice((draw for draw in drawn if draw is not None), DRAWS))
        if not draws:
            subject.cannot_judge(f"{request.label} in {dtype}: rounding chooses other structure")
            continue
        by_name = {
            name: list(zip(*(draw[name] for draw in draws), strict=True)) for name in draws[0]
        }
        steepest = max(max(size) for name, (_, _, size) in by_name.items() if name != OUTPUT)
        for name, (ours, moved, size) in by_name.items():
            is_output = name == OUTPUT
            error = max(ours) if is_output or torch.inf in ours else median(ours)
            largest = max(size) if is_output else steepest
            allowed = AMPLIFIED * max(moved) + ULPS * eps * largest
            if not error <= allowed < torch.inf:
                raise LawError(
                    f"{request.label} in {dtype}: {name}: error {error:.2e}, allowed {allowed:.2e}"
                )


def _errors(
    subject: Subject, request: Request, dtype: torch.dtype, seed: int
) -> dict[str, tuple[float, float, float]] | None:
    """Our error, the change under perturbation, and the largest true value, of the output and of every gradient.

    None where the structure in this type is not that of float64.
    """
    mixer, exact = subject.make(dtype, seed), subject.make(dtype, seed).double()
    x = subject.tokens(B, T, seed=seed, dtype=dtype)
    wide = _in_double(request)
    truth, structure = _computed(exact, wide, x.double(), dtype)
    ours, own_structure = _computed(mixer, request, x, dtype)
    if not _same(structure, own_structure):
        return None
    moved = []
    for step in range(STEPS):
        generator = torch.Generator().manual_seed(step)
        near = deepcopy(exact)
        with torch.no_grad():
            for parameter in near.parameters():
                parameter.copy_(_perturbed(parameter, dtype, generator))
        context = wide.context
        context = None if context is None else _perturbed(context, dtype, generator)
        beside = Request(request.label, wide.mask, context)
        found, structure_beside = _computed(
            near, beside, _perturbed(x.double(), dtype, generator), dtype
        )
        if _same(structure, structure_beside):
            moved.append(found)
    if not moved:
        return None
    names = [OUTPUT, "gradient of x", *(f"gradient of {n}" for n, _ in mixer.named_parameters())]
    return {
        name: (
            _largest(own - true),
            max(_largest(near - true) for near in beside),
            _largest(true),
        )
        for name, own, true, *beside in zip(names, ours, truth, *moved, strict=True)
    }


def _computed(
    mixer: Mixer, request: Request, x: Tensor, dtype: torch.dtype
) -> tuple[list[Tensor], dict[str, Tensor]]:
    """Output and gradients, in float64, and the structure that they were computed with."""
    x = x.detach().requires_grad_()
    y = request(mixer, x)
    found = [y, *gradients(y, [x, *mixer.parameters()], like=dtype)]
    plan = mixer.plan(x.detach(), context=request.context, mask=request.mask)
    return [z.detach().double() for z in found], plan or {}


def _same(plan: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    """True if two plans choose alike; what is not chosen but computed may differ by rounding."""
    return all(
        value.is_floating_point() or torch.equal(value, other[name]) for name, value in plan.items()
    )


def _perturbed(z: Tensor, dtype: torch.dtype, generator: torch.Generator) -> Tensor:
    sign = torch.randint(0, 2, z.shape, generator=generator) * 2 - 1
    return z.detach() * (1 + torch.finfo(dtype).eps * sign)


def _in_double(request: Request) -> Request:
    context = None if request.context is None else request.context.double()
    return Request(request.label, request.mask, context)


def _largest(z: Tensor) -> float:
    """The largest magnitude, as a float; infinite where there is a NaN, 0 for an empty tensor."""
    return z.abs().nan_to_num(torch.inf, posinf=torch.inf).max().item() if z.numel() else 0.0
