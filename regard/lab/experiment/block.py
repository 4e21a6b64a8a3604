"""The unit of comparison: an ordinary block, of a mechanism and a feed-forward layer, as large as softmax's."""

from typing import Any, ClassVar

from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Mask, OptionError
from regard.lab.experiment.entry import Entry
from regard.models import StackConfig, count_parameters, match_parameters
from regard.models.blocks import make_blocks


class BlockConfig(StackConfig):
    """One block without embeddings: two layers of a mixer that includes its feed-forward."""

    name: ClassVar[str] = "block"
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

    def forward(self, x: Float[Tensor, "B T D"], *, mask: Mask) -> Float[Tensor, "B T D"]:
        return self.blocks(x, mask=mask)

    def initial_state(self, batch_size: int, *, max_len: int | None = None) -> tuple[Any, ...]:
        return tuple(m.initial_state(batch_size, max_len=max_len) for m in self.blocks.mixers)

    def extend(
        self, x: Float[Tensor, "B N D"], state: tuple[Any, ...], *, donate: bool = False
    ) -> tuple[Float[Tensor, "B N D"], tuple[Any, ...]]:
        return self.blocks.stream(x, state, valid=None, donate=donate)


def equal_block(
    entry: Entry, *, dim: int, num_heads: int, max_len: int, causal: bool
) -> BlockConfig:
    """Its feed-forward width makes it as large as softmax's block, within 10 %.

    Where no width does, because the mechanism keeps weights for each position say, the width is the ordinary one.
    """

    assert entry.mixer is not None
    shell = dict(dim=dim, num_heads=num_heads, max_len=max_len, causal=causal)
    own = BlockConfig(mixer=entry.mixer, mixer_options=dict(entry.options), **shell)  # type: ignore[arg-type]
    if entry.is_softmax:
        return own
    softmax = BlockConfig(mixer="softmax", **shell)  # type: ignore[arg-type]
    try:
        return match_parameters(own, count_parameters(softmax))
    except OptionError:
        return own
