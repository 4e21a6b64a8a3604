"""Block: one mixer and one feed-forward layer, each with a norm and a residual path.

    pre-norm:   x <- x + drop(f(norm(x)))       (Xiong et al. 2020, arXiv 2002.04745); the stack ends with a norm
    post-norm:  x <- norm(x + drop(f(x)))       (Vaswani et al. 2017, arXiv 1706.03762)
    both:       x <- x + drop(norm(f(norm(x)))) with `norm_after` (Gemma 2, arXiv 2408.00118)

f is the mixer, then the feed-forward layer. A mixer that includes its feed-forward gets no second layer, and two of
its blocks count as one ordinary block.
"""

from typing import Any

from torch import Tensor, nn

from regard.core import OPEN, CheckedOptions, Mask, Mixer, OptionError, Rate
from regard.models.tokens import Hidden
from regard.nn.norm import NORMS


def layers_per_block(mixer: Mixer) -> int:
    """Returns the number of layers of this mixer that make up one ordinary block."""
    return 2 if mixer.capabilities.includes_ffn else 1


class ResidualPaths(nn.Module, metaclass=CheckedOptions):
    """Residual paths of a block, whose last part is a feed-forward layer, if it has one."""

    norm_first: bool
    dropout: nn.Dropout
    feed_forward: nn.Module | None
    feed_forward_norm: nn.Module | None

    def before(self, x: Hidden, norm: nn.Module) -> Hidden:
        return norm(x) if self.norm_first else x

    def add(self, x: Tensor, y: Tensor, norm: nn.Module) -> Hidden:
        x = x + self.dropout(y)
        return x if self.norm_first else norm(x)

    def feed(self, x: Hidden) -> Hidden:
        norm = self.feed_forward_norm
        if self.feed_forward is None or norm is None:
            return x
        return self.add(x, self.feed_forward(self.before(x, norm)), norm)


class Block(ResidualPaths):
    def __init__(
        self,
        dim: int,
        mixer: Mixer,
        feed_forward: nn.Module | None,
        *,
        norm: str = "layer",
        norm_first: bool = True,
        norm_after: bool = False,
        dropout: Rate = 0.0,
    ):
        super().__init__()
        if mixer.capabilities.includes_ffn and feed_forward is not None:
            raise OptionError(
                f"{mixer.name} includes its feed-forward layer: pass feed_forward=None"
            )
        self.norm_first = norm_first
        self.mixer = mixer
        self.mixer_norm = NORMS[norm](dim)
        self.mixer_after = NORMS[norm](dim) if norm_after else nn.Identity()
        if feed_forward is not None and norm_after:
            feed_forward = nn.Sequential(feed_forward, NORMS[norm](dim))
        self.feed_forward = feed_forward
        self.feed_forward_norm = None if feed_forward is None else NORMS[norm](dim)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Hidden, *, mask: Mask = OPEN) -> Hidden:
        return self.after_mixer(x, self.mixer(self.before(x, self.mixer_norm), mask=mask))

    def extend(self, x: Hidden, state: Any, **options: Any) -> tuple[Hidden, Any]:
        """The next N tokens, and the mixer's state after them; its `extend` takes the options."""
        if self.norm_first:
            mixed, state = self.mixer.extend_normed(x, self.mixer_norm, state, **options)
        else:
            mixed, state = self.mixer.extend(x, state, **options)
        return self.after_mixer(x, mixed), state

    def after_mixer(self, x: Tensor, mixed: Tensor) -> Hidden:
        """The rest of the block: x is what came in, `mixed` what the mixer made of it."""
        return self.feed(self.add(x, self.mixer_after(mixed), self.mixer_norm))
