"""What is timed: a unit, which is a block as large as softmax's or a bare layer, and its passes.

A block has a mechanism and a feed-forward layer. Of a pass something is prepared, which is not timed, and something is run.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from regard.core import Mask, OptionError
from regard.lab.experiment.entry import Entry
from regard.models import StackConfig, count_parameters, match_parameters
from regard.models.blocks import make_blocks
from regard.models.tokens import Hidden
from regard.testing.counting import storages

if TYPE_CHECKING:
    from regard.lab.experiment.speed import Setting

States = tuple  # of each layer
DECODE_STEPS = 8  # of one token each, timed together


class Call(NamedTuple):
    run: Callable[[Any], Any]
    prepare: Callable[[], Any] = lambda: None  # not timed; its result goes to `run`
    repeats: int = 1  # passes in one run
    held_bytes: int = 0  # streaming state


def _forward(unit: Any, setting: "Setting", mask: Mask) -> Call:
    x = tokens(setting, setting.length)
    return Call(lambda _: unit(x, mask=mask))


def _train(unit: Any, setting: "Setting", mask: Mask) -> Call:
    """Forward and backward, to the input and all parameters."""
    x = tokens(setting, setting.length).requires_grad_()
    gradient = torch.randn_like(x)
    unit.train()

    def clear() -> None:
        unit.zero_grad(set_to_none=True)
        x.grad = None

    return Call(lambda _: unit(x, mask=mask).backward(gradient), clear)


def _prefill(unit: Any, setting: "Setting", mask: Mask) -> Call:
    """All tokens into an empty state with room for them."""
    x = tokens(setting, setting.length)
    return Call(
        lambda state: unit.extend(x, state, donate=True),
        lambda: unit.initial_state(setting.batch, max_len=setting.max_len),
    )


def _decode(unit: Any, setting: "Setting", mask: Mask) -> Call:
    """One token after `length` others, which one `extend` has put into the state."""
    new = tokens(setting, 1)
    filled = _prefill(unit, setting, mask)
    _, full = filled.run(filled.prepare())

    def copy() -> Any:
        return unit.extend(new, tree_map_only(Tensor, torch.clone, full), donate=True)[1]

    def run(state: Any) -> None:
        for _ in range(DECODE_STEPS):
            _, state = unit.extend(new, state, donate=True)

    return Call(run, copy, DECODE_STEPS, state_bytes(full))


PASSES = {"forward": _forward, "train": _train, "prefill": _prefill, "decode": _decode}
STREAMING = ("prefill", "decode")


def tokens(setting: "Setting", length: int) -> Tensor:
    generator = torch.Generator().manual_seed(length)
    x = torch.randn(setting.batch, length, setting.dim, generator=generator)
    return x.to(device=setting.device, dtype=getattr(torch, setting.dtype))


def state_bytes(state: Any) -> int:
    """Bytes of a state's storages, each counted once."""
    return sum({one.data_ptr(): one.nbytes() for one in storages(state)}.values())


class BlockConfig(StackConfig):
    """One block without embeddings: two layers of a mixer that includes its feed-forward."""

    name = "block"
    vocab_size: int = 1  # of no account here
    num_layers: int = 1
    position: str = "none"
    causal: bool = False

    def build(self) -> "MixerBlock":
        return MixerBlock(self)


class MixerBlock(nn.Module):
    """x [B T D] -> [B T D], whole or streamed as a mixer is."""

    def __init__(self, config: BlockConfig):
        super().__init__()
        self.blocks = make_blocks(config, causal=config.causal)

    def forward(self, x: Hidden, *, mask: Mask) -> Hidden:
        return self.blocks(x, mask=mask)

    def initial_state(self, batch_size: int, *, max_len: int | None = None) -> States:
        return tuple(m.initial_state(batch_size, max_len=max_len) for m in self.blocks.mixers)

    def extend(self, x: Hidden, state: States, **options: Any) -> tuple[Hidden, States]:
        return self.blocks.stream(x, state, **options)


def equal_block(
    entry: Entry, *, dim: int, num_heads: int, max_len: int, causal: bool
) -> BlockConfig:
    """Its feed-forward width makes it as large as softmax's block, within 10 %.

    Where no width does, because the mechanism keeps weights for each position say, the width is the ordinary one.
    """
    shell = {"dim": dim, "num_heads": num_heads, "max_len": max_len, "causal": causal}
    own = BlockConfig(mixer=entry.mixer, mixer_options=dict(entry.options), **shell)  # type: ignore[arg-type]
    if entry.is_softmax:
        return own
    softmax = BlockConfig(mixer="softmax", **shell)  # type: ignore[arg-type]
    try:
        return match_parameters(own, count_parameters(softmax))
    except OptionError:
        return own
