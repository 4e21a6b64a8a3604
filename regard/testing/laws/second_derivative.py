"""A derivative may be differentiated again: gradient penalties, Hessians and meta-learning get what they should.

Behind a non-linearity, so that a kernel which takes its own inputs for constants is seen: of L(z, w) = projected
m(z + z^3 / 10), the derivative along a direction d of z of all first gradients equals their finite differences. Both
with tiny blocks and past the borders of those that users get.
"""

import torch
from torch import Tensor

from regard.core import Mask, Mixer
from regard.testing.subject import Subject, T, gradients, require

LENGTH = 701  # a prime, past the borders of the default blocks
STEP = 1e-8  # of a finite difference: so small that it hardly crosses the kink of any unit
BOUND = 1e-3  # of the largest norm; maxima that stabilise exponents may take no gradient


def law(subject: Subject) -> None:
    for causal in subject.causalities():
        _equals_finite_differences(subject.make(), subject.tokens(1, T), causal)
    mixer, x = subject.make(blocks="own", max_len=LENGTH), subject.tokens(1, LENGTH)
    _equals_finite_differences(mixer, x, subject.causalities()[-1])


def _equals_finite_differences(mixer: Mixer, z: Tensor, causal: bool) -> None:
    generator = torch.Generator().manual_seed(3)
    direction = torch.randn(z.shape, generator=generator, dtype=z.dtype)
    mask, parameters = Mask(causal=causal), list(mixer.parameters())

    def first(z: Tensor, *, again: bool = False) -> list[Tensor]:
        y = mixer(z + 0.1 * z**3, mask=mask)
        return gradients(y, [z, *parameters], create_graph=again)

    ahead, behind = (first((z + e * direction).requires_grad_()) for e in (STEP, -STEP))
    z = z.clone().requires_grad_()
    along = (first(z, again=True)[0] * direction).sum()
    leaves = [z, *parameters]
    found = torch.autograd.grad(along, leaves, allow_unused=True, materialize_grads=True)
    names = ["x", *(name for name, _ in mixer.named_parameters())]
    expected = [(a - b) / (2 * STEP) for a, b in zip(ahead, behind, strict=True)]
    largest = max(z.norm() for z in expected)
    for name, own, other in zip(names, found, expected, strict=True):
        error = ((own - other).norm() / largest.clamp_min(1e-9)).item()
        require(
            error <= BOUND,
            f"{'causal' if causal else 'plain'}, {z.shape[1]} tokens: second derivative, of x and {name}: "
            f"relative error {error:.1e}",
        )
