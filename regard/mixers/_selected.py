"""Base class of mixers that attend to keys chosen for each query."""

from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Mask
from regard.functional.selected import Choice, bounds, selected_attention
from regard.mixers._base import HeadsMixer
from regard.mixers._cached import CachedMixer


class SelectedMixer(CachedMixer, HeadsMixer):
    """A mechanism writes `_choose`, whose masks hold validity, order and pairs alone; a stream's are causal order."""

    top_k: int
    block_size: Any  # tokens of a block; None: keys are chosen one by one

    def _choose(self, q: Any, k: Tensor, mask: Mask) -> Choice:
        """The blocks of keys that queries read."""
        raise NotImplementedError

    def _attend(self, q, k, v, mask, query=None, key=None):
        if query is not None and not mask.causal and mask.valid is None:
            mask = Mask(causal=True, shift=query[:, 0])
        return self._select(q, k, v, mask)

    def _select(
        self, q: Any, k: Tensor, v: Float[Tensor, "B G S V"], mask: Mask
    ) -> Float[Tensor, "B H T V"]:
        choose = self._choose(q, k, mask)
        return selected_attention(q, k, v, choose, **self._how(q, k, mask))

    def _how(self, q: Tensor, k: Tensor, mask: Mask) -> dict[str, Any]:
        last, _ = bounds(mask, q.shape[2], k.shape[2], q.device)
        how = {"count": self.top_k, "last": last, "block_size": self.block_size or 1}
        return how | {"pairwise": mask.pairwise, "impl": self.impl}

    @torch.no_grad()
    def _plan(self, x, context, mask):
        q, k, _ = self._split(x, context)
        return {"chosen": self._choose(q, k, mask)(slice(0, x.shape[1]))}
