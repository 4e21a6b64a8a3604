"""Block: one mixer and one feed-forward layer, each with a norm and a residual path.

    pre-norm:   x <- x + drop(f(norm(x)))       (Xiong et al. 2020, arXiv 2002.04745); the stack ends with a norm
    post-norm:  x <- norm(x + drop(f(x)))       (Vaswani et al. 2017, arXiv 1706.03762)

f is the mixer, then the feed-forward layer. A mixer that includes its feed-forward gets no second layer, and two of
its blocks count as one ordinary block.
"""

from typing import Any

from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core import OPEN, Mask, Mixer, OptionError
from regard.nn.norm import NORMS


def layers_per_block(mixer: Mixer) -> int:
    """How many layers of this mixer make up one ordinary block."""
    return 2 if mixer.capabilities.includes_ffn else 1


class Block(nn.Module):
    def __init__(
        self,
        dim: int,
        mixer: Mixer,
        feed_forward: nn.Module | None,
        *,
        norm: str = "layer",
        norm_first: bool = True,
        dropout: float = 0.0,
    ):
        super().__init__()
        if mixer.capabilities.includes_ffn and feed_forward is not None:
            raise OptionError(
                f"{mixer.name} includes its feed-forward layer: pass feed_forward=None"
            )
        self.norm_first = norm_first
        self.mixer, self.mixer_norm = mixer, NORMS[norm](dim)
        self.feed_forward = feed_forward
        self.feed_forward_norm = None if feed_forward is None else NORMS[norm](dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Float[Tensor, "B T D"], *, mask: Mask = OPEN) -> Float[Tensor, "B T D"]:
        mixed = self.mixer(self.mixer_norm(x) if self.norm_first else x, mask=mask)
        return self.after_mixer(x, mixed)

    def extend(
        self,
        x: Float[Tensor, "B N D"],
        state: Any,
        *,
        valid: Bool[Tensor, "B N"] | None = None,
        donate: bool = False,
    ) -> tuple[Float[Tensor, "B N D"], Any]:
        """The next N tokens, and the mixer's state after them."""
        if self.norm_first:
            mixed, state = self.mixer.extend_normed(
                x, self.mixer_norm, state, valid=valid, donate=donate
            )
        else:
            mixed, state = self.mixer.extend(x, state, valid=valid, donate=donate)
        return self.after_mixer(x, mixed), state

    def after_mixer(self, x: Tensor, mixed: Tensor) -> Tensor:
        """The rest of the block: x is what came in, `mixed` what the mixer made of it."""
        x = x + self.dropout(mixed)
        if not self.norm_first:
            x = self.mixer_norm(x)
        if self.feed_forward is None or self.feed_forward_norm is None:
            return x
        if self.norm_first:
            return x + self.dropout(self.feed_forward(self.feed_forward_norm(x)))
        return self.feed_forward_norm(x + self.dropout(self.feed_forward(x)))
