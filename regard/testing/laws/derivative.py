"""The gradient is the derivative of the output, along a direction of x and all parameters; forward-mode AD gives it too.

In float64, by central differences: choices (a sort, a hash, the k largest) stay what they are within so small a step.
"""

from dataclasses import replace

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.func import functional_call

from regard.core import Mask, Mixer
from regard.testing.subject import B, Subject, T, gradients, projected, require

STEP = 1e-5
BOUND = 1e-9  # of the gradient's norm, for a direction of length one


def law(subject: Subject) -> None:
    valid = torch.arange(T) < torch.tensor([[T], [T - 4]])
    masks = [Mask(causal=causal) for causal in subject.causalities()]
    if subject.can.padding:
        masks = [masks[0], replace(masks[-1], valid=valid)]
    for mask in masks:
        _along_a_direction(subject.make(), subject.tokens(B, T), mask)


def _along_a_direction(mixer: Mixer, x: Tensor, mask: Mask) -> None:
    at = {"x": x} | {name: z.detach() for name, z in mixer.named_parameters()}
    generator = torch.Generator().manual_seed(1)
    drawn = {name: torch.randn(z.shape, generator=generator).to(z) for name, z in at.items()}
    length = torch.cat([z.flatten() for z in drawn.values()]).norm()
    direction = {name: z / length for name, z in drawn.items()}

    def output(given: dict[str, Tensor]) -> Tensor:
        parameters = {name: z for name, z in given.items() if name != "x"}
        return functional_call(mixer, parameters, (given["x"],), {"mask": mask})

    def moved(step: float) -> Tensor:
        return projected(output({name: z + step * direction[name] for name, z in at.items()}))

    leaves = {name: z.clone().requires_grad_() for name, z in at.items()}
    gradient = gradients(output(leaves), [*leaves.values()])
    norm = torch.cat([z.flatten() for z in gradient]).norm().clamp_min(1e-9)
    along = sum((g * d).sum() for g, d in zip(gradient, direction.values(), strict=True))
    with torch.no_grad():
        difference = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    with forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(z, direction[name]) for name, z in at.items()}
        tangent = forward_ad.unpack_dual(projected(output(dual))).tangent
    how = f"{'causal' if mask.causal else 'plain'}{'' if mask.valid is None else ', padded'}"
    for what, found in (("finite difference", difference), ("forward-mode AD", tangent)):
        found = torch.zeros_like(norm) if found is None else found
        error = ((found - along).abs() / norm).item()
        require(error <= BOUND, f"{how}: {what} and gradient differ by {error:.1e} of its norm")
