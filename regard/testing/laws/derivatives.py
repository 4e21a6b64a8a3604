"""Gradients are derivatives, and may be differentiated again, transformed and taken in forward mode."""

import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.utils import get_total_norm

from regard.core import Mask, Mixer, TensorMap
from regard.testing.laws.formulas import PLAIN
from regard.testing.subject import (
    Request,
    Subject,
    T,
    Tensors,
    gradients,
    normal,
    projected,
    require,
    require_close,
    require_same,
    results,
    seeded,
    tensors,
)

STEP = 1e-5  # of a finite difference
BOUND = 1e-9  # of the gradient's norm, for a direction of length one
LENGTH = 701  # a prime, past the borders of the default blocks
SMALL_STEP = 1e-8  # so small that it hardly crosses the kink of any unit
SECOND_BOUND = 1e-3  # of the largest norm; maxima that stabilise exponents may take no gradient
ROWS = 3


def derivative(subject: Subject) -> None:
    """The gradient is the derivative of the output, along a direction of x and all parameters; forward-mode AD gives it too.

    In float64, by central differences: choices (a sort, a hash, the k largest) stay what they are within so small a step.
    """
    for request in subject.samples():
        _along_a_direction(subject.make(), subject.x, request)


def _along_a_direction(mixer: Mixer, x: Tensor, request: Request) -> None:
    at = {"x": x} | {name: z.detach() for name, z in mixer.named_parameters()}
    generator = seeded(1)
    direction = {name: torch.randn(z.shape, generator=generator).to(z) for name, z in at.items()}
    length = get_total_norm(direction.values())
    direction = {name: z / length for name, z in direction.items()}

    def output(given: Tensors) -> Tensor:
        parameters = {name: z for name, z in given.items() if name != "x"}
        return functional_call(mixer, parameters, (given["x"],), {"mask": request.mask})

    def moved(step: float) -> Tensor:
        return projected(output({name: z + step * direction[name] for name, z in at.items()}))

    leaves = {name: z.clone().requires_grad_() for name, z in at.items()}
    gradient = gradients(output(leaves), [*leaves.values()])
    norm = get_total_norm(gradient).clamp_min(1e-9)
    along = sum((g * d).sum() for g, d in zip(gradient, direction.values(), strict=True))
    with torch.no_grad():
        difference = (moved(STEP) - moved(-STEP)) / (2 * STEP)
    with forward_ad.dual_level():
        dual = {name: forward_ad.make_dual(z, direction[name]) for name, z in at.items()}
        tangent = forward_ad.unpack_dual(projected(output(dual))).tangent
    for what, found in (("finite difference", difference), ("forward-mode AD", tangent)):
        found = torch.zeros_like(norm) if found is None else found
        error = ((found - along).abs() / norm).item()
        require(
            error <= BOUND,
            f"{request.label}: {what} and gradient differ by {error:.1e} of its norm",
        )


def second_derivative(subject: Subject) -> None:
    """A derivative may be differentiated again: gradient penalties, Hessians and meta-learning get what they should.

    Behind a non-linearity, so that a kernel which takes its own inputs for constants is seen: of L(z, w) = projected
    m(z + z^3 / 10), the derivative along a direction d of z of all first gradients equals their finite differences. Both
    with tiny blocks and past the borders of those that users get.
    """
    orders = subject.orders()
    cases = [(subject.make(), T, order) for order in orders]
    cases.append((subject.make(blocks="own", max_len=LENGTH), LENGTH, orders[-1]))
    for mixer, length, order in cases:
        z = subject.tokens(1, length)
        equals_finite_differences(
            partial(order, mixer), mixer, z, f"{order.label}, {length} tokens: "
        )


def equals_finite_differences(
    call: TensorMap, module: nn.Module, z: Tensor, label: str = ""
) -> None:
    """The law of second derivatives for `call(z)`, which uses the module's parameters."""
    direction = normal(*z.shape, seed=3)
    parameters = dict(module.named_parameters())

    def first(z: Tensor, *, again: bool = False) -> list[Tensor]:
        return gradients(call(z + 0.1 * z**3), [z, *parameters.values()], create_graph=again)

    steps = (SMALL_STEP, -SMALL_STEP)
    ahead, behind = (first((z + step * direction).requires_grad_()) for step in steps)
    z = z.clone().requires_grad_()
    along = (first(z, again=True)[0] * direction).sum()
    leaves = {"x": z} | parameters
    found = torch.autograd.grad(along, [*leaves.values()], materialize_grads=True)
    expected = [(a - b) / (2 * SMALL_STEP) for a, b in zip(ahead, behind, strict=True)]
    largest = max(z.norm() for z in expected).clamp_min(1e-9)
    for name, own, other in zip(leaves, found, expected, strict=True):
        error = ((own - other).norm() / largest).item()
        what = f"{label}second derivative, of x and {name}"
        require(error <= SECOND_BOUND, f"{what}: relative error {error:.1e}")


def transforms(subject: Subject) -> None:
    """torch.func's grad, vmap and jacrev take the mixer as any function, and give what autograd gives.

    `functional_call` with other parameters has their gradients, where the backward comes after the call, and computes again.
    """
    rows = torch.stack([subject.tokens(1, T, seed=seed) for seed in range(ROWS)])
    mixer, other = (subject.make(seed=n, blocks=PLAIN) for n in range(2))
    own = tensors(other)

    def moved(x: Tensor, **options: Any) -> Tensor:
        return functional_call(mixer, own, (x,), options)

    for order in subject.orders():
        equals_autograd(subject.make(), rows, label=f"{order.label}: ", mask=order.mask)
        x = rows[0].clone().requires_grad_()
        found, expected = (results(other, order(call, x), x=x) for call in (moved, other))
        require_same(found, expected, 1e-10, f"{order.label}: functional_call")


def equals_autograd(
    module: nn.Module, rows: Tensor, *given: Any, label: str = "", **options: Mask
) -> None:
    """The law of transforms for `module(row, *given, **options)`, of which each row is a batch."""
    own: Tensors = dict(module.named_parameters())

    def call(x: Tensor, parameters: Tensors = own) -> Tensor:
        return functional_call(module, parameters, (x, *given), options)

    def loss(x: Tensor, parameters: Tensors) -> Tensor:
        return (call(x, parameters) * weight).sum()

    leaves = [x.clone().requires_grad_() for x in rows]
    alone = [results(module, call(x), x=x) for x in leaves]
    expected = {name: torch.stack([found[name] for found in alone]) for name in alone[0]}
    weight = normal(*alone[0]["output"].shape, seed=5)  # as `projected` has it
    with warnings.catch_warnings():
        # Under vmap; not judged here.
        warnings.filterwarnings("ignore", "There is a performance drop")
        detached = {name: z.detach() for name, z in own.items()}
        of_x, of_own = vmap(grad(loss, argnums=(0, 1)), in_dims=(0, None))(rows, detached)
        found = {"output": vmap(call)(rows), "gradient of x": of_x}
        found |= {f"gradient of {name}": z for name, z in of_own.items()}
        two = jacrev(lambda x: call(x)[0, -1, :2])(rows[0])
    require_same(found, expected, 1e-10, f"{label}vmap")
    last = call(leaves[0])[0, -1, :2]
    jacobian = [torch.autograd.grad(z, leaves[0], retain_graph=True)[0] for z in last]
    require_close(two, torch.stack(jacobian), 1e-10, f"{label}jacrev")
