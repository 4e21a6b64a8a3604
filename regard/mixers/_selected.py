"""Base class of mixers that attend to keys chosen for each query."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Mask, No, Queries, SharedKeys
from regard.functional.rows import TILE
from regard.functional.selected import ROOM, Index, bounds, divergence, largest, selected_attention
from regard.mixers._base import ALL, HeadsMixer
from regard.mixers._cached import CachedMixer


class SelectedMixer(CachedMixer, HeadsMixer):
    """A mechanism writes `_index`, whose masks hold validity, order and pairs alone; a stream's are causal order."""

    family = "routed"
    capabilities = ALL.but(
        global_tokens=No("keys are chosen by their scores, and a mark adds none"),
        positions=frozenset({"absolute", "rotary"}),
        approximates="softmax",
        time="T^2 H K + T W H K",
        memory="T D + W H K",
        state="T G K",
    )

    block_size: Any  # tokens of a block; None: keys are chosen one by one

    def __init__(self, top_k: int, block_size: int | None, *options: Any, **of_heads: Any):
        """top_k: keys, or blocks of `block_size` keys, that a query reads; None: keys are chosen one by one."""
        super().__init__(*options, repeat=False, **of_heads)
        self.top_k = top_k
        self.block_size = block_size

    def _index(self, q: Any, k: Tensor, mask: Mask) -> Index:
        """What scores blocks of keys."""
        raise NotImplementedError

    def _pair(self, q: Any, k: Tensor) -> tuple[Queries, SharedKeys]:
        """Queries and keys of the heads, if those of `_split` carry more."""
        return q, k

    def mix(self, x, context, mask):
        q, k, v = self._split(x, context)
        return self.heads.merge(self._select(q, k, v, mask))

    def _attend(self, q, k, v, mask, query=None, key=None):
        if query is not None and not mask.causal and mask.valid is None:
            mask = Mask(causal=True, shift=query[:, 0])
        return self._select(q, k, v, mask)

    def _select(self, q, k, v, mask):
        (q, k), index = self._pair(q, k), self._index(q, k, mask)
        return selected_attention(q, k, v, index, **self._how(q, k, mask))

    def _divergence(self, x: Tensor, context: Tensor | None, mask: Mask) -> Float[Tensor, "B T"]:
        """KL of the softmax of the index from the attention weights, for each query; it moves the index alone."""
        q, k, _ = self._split(x.detach(), None if context is None else context.detach())
        (q, k), index = self._pair(q, k), self._index(q, k, mask)
        return divergence(q, k, index, **self._how(q, k, mask))[:, 0, :, 0]

    def _how(self, q: Tensor, k: Tensor, mask: Mask) -> dict[str, Any]:
        C, (H, K) = self.block_size or 1, (q.shape[1], k.shape[3])
        tile = min(TILE, max(ROOM // (4 * H * K * C * self.top_k), 16))
        tile = getattr(self.impl, "tile", None) or tile
        last, _ = bounds(mask, q, k)
        return {"count": self.top_k, "last": last, "block_size": C, "tile": tile}

    def _shown(self, x, context):
        return self.heads.split(x, context)

    @torch.no_grad()
    def _plan(self, x, context, mask):
        q, k, _ = self._split(x, context)
        return {"chosen": largest(*self._index(q, k, mask)(slice(0, x.shape[1])), self.top_k)}
