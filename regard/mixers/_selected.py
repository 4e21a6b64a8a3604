"""Base class of mixers that attend to keys chosen for each query."""

from typing import Any

import torch
from torch import Tensor

from regard.core import Mask, Observation
from regard.functional.mixed_chunk import units
from regard.functional.rows import TILE, sizes_of
from regard.functional.selected import ROOM, Index, bounds, largest, selected_attention
from regard.mixers._base import HeadsMixer
from regard.mixers._cached import CachedMixer


class SelectedMixer(CachedMixer, HeadsMixer):
    """A mechanism writes `_index`, whose masks hold validity, order and pairs alone; a stream's are causal order."""

    top_k: int
    block_size: Any  # tokens of a block; None: keys are chosen one by one

    def _index(self, q: Any, k: Tensor, mask: Mask) -> Index:
        """What scores blocks of keys."""
        raise NotImplementedError

    def mix(self, x, context, mask):
        q, k, v = self._split(x, context)
        return self.heads.merge(self._select(q, k, v, mask))

    def _attend(self, q, k, v, mask, query=None, key=None):
        if query is not None and not mask.causal and mask.valid is None:
            mask = Mask(causal=True, shift=query[:, 0])
        return self._select(q, k, v, mask)

    def _select(self, q, k, v, mask):
        return selected_attention(q, k, v, self._index(q, k, mask), **self._how(q, k, mask))

    def _how(self, q: Tensor, k: Tensor, mask: Mask) -> dict[str, Any]:
        C, (H, K) = self.block_size or 1, (q.shape[1], k.shape[3])
        tile = min(TILE, max(ROOM // (4 * H * K * C * self.top_k), 16))
        last, _ = bounds(mask, q, k)
        return {"count": self.top_k, "last": last, "block_size": C} | sizes_of(self.impl, tile=tile)

    def _observe(self, x, context, mask):
        weights = self._mixed(x, context, mask, units)
        return Observation(*self.heads.split(x, context), weights)

    @torch.no_grad()
    def _plan(self, x, context, mask):
        q, k, _ = self._split(x, context)
        every = slice(0, x.shape[1])
        return {"chosen": largest(*self._index(q, k, mask)(every), self.top_k)}
