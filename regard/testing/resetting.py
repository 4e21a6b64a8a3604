"""What `reset_parameters` must restore in a module that was built on the meta device, as FSDP and torchtitan build it.

with torch.device("meta"): module = make()
module.to_empty(device="cpu")
for m in module.modules(): if hasattr(m, "reset_parameters"): m.reset_parameters()
"""

import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import torch
from torch import Tensor, nn

from regard.testing.subject import require, tensors

M = TypeVar("M", bound=nn.Module)

ENOUGH = 128  # elements from which the spread of random values is compared
SPREAD = 1.5  # largest ratio of two standard deviations


@torch.no_grad()
def require_reset(
    make: Callable[[], M],
    call: Callable[[M], Sequence[Tensor]],
    other_starts: Callable[[str], None] | None = None,
) -> None:
    """Nothing is left of the memory's content, what no seed changes is as built, and what is random has the same spread.

    With every parameter and buffer copied from a module that was built as usual, the outputs of `call` are equal. other_starts: is told
    of parameters that start elsewhere than construction has them, in the place of a LawError.
    """
    built, other = (_built(make, seed) for seed in (1, 2))
    reset, again = (_reset(make, garbage) for garbage in (math.nan, 1e30))
    left, elsewhere = _not_restored(reset, again, built, other)
    said = f"after to_empty, reset_parameters does not restore {'; '.join(left + elsewhere)}"
    if left or other_starts is None:
        require(not left + elsewhere, said)
    elif elsewhere:
        other_starts(said)
    state = tensors(built)
    for name, tensor in tensors(reset).items():
        tensor.copy_(state[name])
    same = all(map(torch.equal, call(built.eval()), call(reset.eval())))
    require(same, "built on the meta device, with its state copied, it is another function")


def _not_restored(
    reset: nn.Module, again: nn.Module, built: nn.Module, other: nn.Module
) -> tuple[list[str], list[str]]:
    """Tensors that keep the memory's content, or are other constants; and random parameters that start elsewhere."""
    left = []
    elsewhere = list[str]()
    parameters = dict(built.named_parameters())
    states = [tensors(module) for module in (again, built, other)]
    for name, x in tensors(reset).items():
        twin, y, z = (state[name] for state in states)
        if not torch.equal(x, twin):  # NaN is unequal to itself
            left.append(f"{name}, which keeps what memory held")
        elif torch.equal(y, z):
            if not torch.equal(x, y):
                some = elsewhere if name in parameters else left
                some.append(f"{name}, which starts from other values")
        elif x.is_floating_point() and x.numel() >= ENOUGH:
            ratio = float(x.std() / y.std())
            if not 1 / SPREAD < ratio < SPREAD:
                elsewhere.append(
                    f"{name}, whose standard deviation is {ratio:.2g} times that of construction"
                )
    return left, elsewhere


def _built(make: Callable[[], M], seed: int) -> M:
    torch.manual_seed(seed)
    return make()


def _reset(make: Callable[[], M], garbage: float) -> M:
    with torch.device("meta"):
        module = _built(make, 3)

    def memory(x: Tensor) -> Tensor:
        held = garbage if x.is_floating_point() else int(math.isnan(garbage))
        return torch.full_like(x, held, device="cpu")

    module._apply(memory)  # `to_empty`, with known content
    torch.manual_seed(4)
    for part in module.modules():
        getattr(part, "reset_parameters", lambda: None)()
    return module
