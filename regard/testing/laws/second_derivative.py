"""A derivative may be differentiated again: gradient penalties, Hessians and meta-learning get what they should.

Behind a non-linearity, so that a kernel which takes its own inputs for constants is seen: of L(z, w) = projected
m(z + z^3 / 10), the derivative along a direction d of z of all first gradients equals their finite differences. Both
with tiny blocks and past the borders of those that users get.
"""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.core import Mask, Mixer
from regard.testing.subject import Subject, T, gradients, require

LENGTH = 701  # a prime, past the borders of the default blocks
STEP = 1e-8  # of a finite difference: so small that it hardly crosses the kink of any unit
BOUND = 1e-3  # of the largest norm; maxima that stabilise exponents may take no gradient


def law(subject: Subject) -> None:
    for causal in subject.causalities():
        _of_mixer(subject.make(), subject.tokens(1, T), causal)
    mixer, x = subject.make(blocks="own", max_len=LENGTH), subject.tokens(1, LENGTH)
    _of_mixer(mixer, x, subject.causalities()[-1])


def _of_mixer(mixer: Mixer, z: Tensor, causal: bool) -> None:
    label = f"{'causal' if causal else 'plain'}, {z.shape[1]} tokens: "
    equals_finite_differences(lambda x: mixer(x, mask=Mask(causal=causal)), mixer, z, label)


def equals_finite_differences(
    call: Callable[[Tensor], Tensor], module: nn.Module, z: Tensor, label: str = ""
) -> None:
    """For `call(z)`, which uses the module's parameters."""
    generator = torch.Generator().manual_seed(3)
    direction = torch.randn(z.shape, generator=generator, dtype=z.dtype)
    names, parameters = zip(*[("x", z), *module.named_parameters()], strict=True)

    def first(z: Tensor, *, again: bool = False) -> list[Tensor]:
        y = call(z + 0.1 * z**3)
        return gradients(y, [z, *parameters[1:]], create_graph=again)

    ahead, behind = (first((z + e * direction).requires_grad_()) for e in (STEP, -STEP))
    z = z.clone().requires_grad_()
    along = (first(z, again=True)[0] * direction).sum()
    leaves = [z, *parameters[1:]]
    found = torch.autograd.grad(along, leaves, allow_unused=True, materialize_grads=True)
    expected = [(a - b) / (2 * STEP) for a, b in zip(ahead, behind, strict=True)]
    largest = max(z.norm() for z in expected)
    for name, own, other in zip(names, found, expected, strict=True):
        error = ((own - other).norm() / largest.clamp_min(1e-9)).item()
        what = f"{label}second derivative, of x and {name}"
        require(error <= BOUND, f"{what}: relative error {error:.1e}")
