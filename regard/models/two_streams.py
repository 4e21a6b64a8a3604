"""XLNet's layer: two streams of hidden states with one set of weights, and the orders that say what each token sees.

The equations are those of `regard.models.xlnet`.
"""

from abc import ABC
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Mask, OtherTokens, Rate
from regard.functional.relative import Segments, segment_bias
from regard.functional.rows import masked_softmax, upto
from regard.mixers.transformer_xl import TransformerXL
from regard.models.blocks import Block
from regard.models.config import SizesConfig
from regard.models.tokens import Hidden, Numbers
from regard.nn import FEED_FORWARDS

CONTEXT = -1
"""The rank of a token that all may see."""
Order = Int[Tensor, "B T"]


class TrunkConfig(SizesConfig, ABC):
    """Fields shared by pre-training and fine-tuning. checkpoint: every layer is computed again for its backward.

    Args:
        clamp_len: tokens: larger distances count as this one; None: no limit
    """

    clamp_len: int | None = None
    attention_dropout: Rate = 0.0


class FactorizationOrder(NamedTuple):
    """The rank of each token, which decides what it sees, and its segment; valid tokens come first in every row."""

    order: Order
    valid: Bool[Tensor, "B T"]
    segments: Numbers

    def masks(self, held: Bool[Tensor, "B M"]) -> tuple[Mask, Mask]:
        """The masks of the content and the query stream, over memory and tokens."""
        r, T = self.order, self.order.shape[1]
        before = r[:, None] < r[:, :, None].clamp_min(0)
        itself = torch.eye(T, dtype=torch.bool, device=r.device)
        memory = held[:, None].expand(-1, T, -1)
        content, query = (
            Mask(pairwise=torch.cat([memory, sees & self.valid[:, None]], 2)[:, None])
            for sees in (before | itself, before)
        )
        return content, query


class TwoStreamLayer(Block):
    mixer: TransformerXL

    def __init__(self, config: TrunkConfig):
        mixer = TransformerXL(
            config.dim,
            num_heads=config.num_heads,
            clamp_len=config.clamp_len,
            segments=True,
            dropout=config.attention_dropout,
        )
        feed_forward = FEED_FORWARDS[config.feed_forward](
            config.dim, config.hidden_dim, bias=True, dropout=config.dropout
        )
        super().__init__(config.dim, mixer, feed_forward, norm_first=False, dropout=config.dropout)

    def forward(  # type: ignore[override]
        self,
        h: Hidden,
        g: Float[Tensor, "B _ D"] | None,
        memory: Float[Tensor, "B M D"],
        masks: tuple[Mask, Mask],
        segments: Numbers,
        predicted: Int[Tensor, "B P"] | None = None,
    ) -> tuple[Hidden, Float[Tensor, "B _ D"] | None]:
        """Keys and values of both streams are those of h as it comes in; g has the places `predicted`, or all."""
        seen = torch.cat([memory, h], 1)
        content, query = masks
        after = self.after_mixer(h, mixed(self.mixer, h, seen, content, segments))
        if g is None:
            return after, None
        given = g, seen, query, segments
        if predicted is None:
            return after, self.after_mixer(g, mixed(self.mixer, *given))
        return after, self.after_mixer(g, self._mix_predicted(*given, predicted))

    def _mix_predicted(
        self, g: Tensor, seen: Tensor, mask: Mask, segments: Numbers, place: Tensor
    ) -> Tensor:
        """`mixed` for queries at these places: their P S pairs with keys are gathered one by one."""
        mixer, S = self.mixer, seen.shape[1]
        q, k, v = mixer.heads.split(g, seen)
        assert mask.pairwise is not None
        allowed = mask.pairwise.gather(2, place[:, None, :, None].expand(-1, -1, -1, S))
        behind = place + (S - mask.pairwise.shape[2])  # the memory
        scores = mixer.position.scores(q, k, behind, upto(S, g)[None])
        if segments is not None:
            assert mixer.segment is not None
            here = segments.gather(1, place)
            ids = Segments(here, _of_keys(segments, seen), mixer.segment.s, mixer.segment.b)
            scores = scores + segment_bias(q, ids, 1.0)(slice(0, g.shape[1]), slice(0, S))
        weights = masked_softmax(q.shape[-1] ** -0.5 * scores, allowed)
        weights = F.dropout(weights, mixer.dropout, self.training)
        return mixer.heads.merge(weights @ v)


def mixed(mixer: TransformerXL, x: Tensor, seen: Tensor, mask: Mask, segments: Numbers) -> Tensor:
    """What x mixes of memory and tokens, `seen`."""
    if segments is None:
        return mixer(x, context=seen, mask=mask)
    return mixer.relate(x, segments, _of_keys(segments, seen), context=seen, mask=mask)


def _of_keys(segments: Int[Tensor, "B T"], seen: OtherTokens) -> Int[Tensor, "B S"]:
    """Segments of memory and tokens: a memory is segment 0."""
    return F.pad(segments, (seen.shape[1] - segments.shape[1], 0))
