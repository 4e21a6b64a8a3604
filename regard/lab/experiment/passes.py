"""The passes that are timed, each on a unit: what is prepared, which is not timed, and what is run."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch.utils import _pytree as pytree

from regard.core import Mask
from regard.lab.experiment.stored import Pass

if TYPE_CHECKING:
    from regard.lab.experiment.speed import Setting

DECODE_STEPS = 8  # of one token each, timed together


@dataclass(frozen=True)
class Call:
    run: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None  # not timed; its result goes to `run`
    repeats: int = 1  # passes in one run
    held_bytes: int = 0  # streaming state


def _forward(unit: Any, setting: "Setting", causal: bool) -> Call:
    x, mask = tokens(setting, setting.length), Mask(causal=causal)
    return Call(lambda _: unit(x, mask=mask))


def _train(unit: Any, setting: "Setting", causal: bool) -> Call:
    """Forward and backward, to the input and all parameters."""
    x, mask = tokens(setting, setting.length).requires_grad_(), Mask(causal=causal)
    gradient = torch.randn_like(x)
    unit.train()

    def clear() -> None:
        unit.zero_grad(set_to_none=True)
        x.grad = None

    return Call(lambda _: unit(x, mask=mask).backward(gradient), clear)


def _prefill(unit: Any, setting: "Setting", causal: bool) -> Call:
    """All tokens into an empty state with room for them."""
    x = tokens(setting, setting.length)
    return Call(
        lambda state: unit.extend(x, state, donate=True),
        lambda: unit.initial_state(setting.batch, max_len=setting.max_len),
    )


def _decode(unit: Any, setting: "Setting", causal: bool) -> Call:
    """One token after `length` others, which one `extend` has put into the state."""
    new, filled = tokens(setting, 1), _prefill(unit, setting, causal)
    _, full = filled.run(filled.prepare())

    def copy() -> Any:
        state = pytree.tree_map_only(torch.Tensor, torch.clone, full)
        return unit.extend(new, state, donate=True)[1]

    def run(state: Any) -> None:
        for _ in range(DECODE_STEPS):
            _, state = unit.extend(new, state, donate=True)

    return Call(run, copy, DECODE_STEPS, state_bytes(full))


PASSES: dict[Pass, Callable[[Any, "Setting", bool], Call]] = {
    "forward": _forward,
    "train": _train,
    "prefill": _prefill,
    "decode": _decode,
}
STREAMING: tuple[Pass, ...] = ("prefill", "decode")


def tokens(setting: "Setting", length: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(setting.batch, length, setting.dim, generator=generator)
    return x.to(device=setting.device, dtype=getattr(torch, setting.dtype))


def state_bytes(state: Any) -> int:
    """Bytes of a state's storages, each counted once."""
    leaves = [leaf for leaf in pytree.tree_leaves(state) if isinstance(leaf, torch.Tensor)]
    return sum({s.data_ptr(): s.nbytes() for s in (t.untyped_storage() for t in leaves)}.values())
