"""Base class of mixers that attend to keys chosen for each query."""

import torch
from torch import Tensor

from regard.core import Mask
from regard.functional.selected import Choice
from regard.mixers._base import HeadsMixer
from regard.mixers._cached import CachedMixer


class SelectedMixer(CachedMixer, HeadsMixer):
    """A mechanism writes `_choose` and `_read_chosen`, which get masks of validity, order and pairs alone."""

    def _attend(self, q, k, v, mask, query=None, key=None):
        """A stream's mask of pairs is causal order from the first new token on."""
        if query is not None and not mask.causal and mask.valid is None:
            mask = Mask(causal=True, shift=query[:, 0])
        return self._select(q, k, v, mask)

    def _select(self, q: Tensor, k: Tensor, v: Tensor, mask: Mask) -> Tensor:
        raise NotImplementedError

    def _choose(self, q: Tensor, k: Tensor, mask: Mask) -> Choice:
        """The blocks of keys that queries read."""
        raise NotImplementedError

    @torch.no_grad()
    def _plan(self, x, context, mask):
        q, k, _ = self._split(x, context)
        return {"chosen": self._choose(q, k, mask)(slice(0, x.shape[1]))}
