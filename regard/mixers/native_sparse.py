"""Native sparse attention, NSA (Yuan et al. 2025, arXiv 2502.11089): compressed blocks, a few selected blocks and a window, under gates.

    y_i = concat_h( g1 attend(q, mean keys and values of blocks) + g2 attend(q, keys of `top_k` blocks) + g3 attend(q, last `window_size` keys) ) W_out
    g = sigmoid(W_g x + b_g), of each head and branch

A block counts in the first branch from its last token on. Its weights there, averaged over the heads that share keys, choose the blocks of the second, after the first block, the own one
and the one before. Cost: T^2 / C (K + V) and T (C top_k + window_size) (K + V) a head, C = `block_size`. A stream keeps keys and values, and makes the means anew. As in fla-org's code and unlike the
paper, blocks are compressed by their mean, do not overlap, and are those that are selected, and the branches share keys and values. `num_kv_heads` (arXiv 2305.13245): one choice for each.

Args:
    block_size: tokens of a block of keys
    top_k: blocks that the second branch reads
    window_size: keys that the third branch reads, the query's own among them
"""

import torch

from regard.core import No
from regard.functional.rows import (
    Impl,
    in_chunks,
    masked_softmax,
    scores,
    tiled,
    visible_keys,
)
from regard.functional.selected import block_means, bounds, chosen, largest, read
from regard.mixers._base import ALL
from regard.mixers._selected import SelectedMixer
from regard.mixers.moba import NO_MARKS
from regard.nn.starts import Glorot, glorot


class NativeSparse(SelectedMixer):
    __doc__ = __doc__
    name = "native_sparse"
    family = "routed"
    paper = "Yuan et al. 2025, arXiv 2502.11089"
    capabilities = ALL.but(
        bidirectional=No("its blocks and its window end at the query"),
        pairwise=No("a block is read as one mean, of keys that a query may not see, too"),
        global_tokens=NO_MARKS,
        cross=No("its own block and its window are of one sequence"),
        time="T^2 H K + T W H K",
        memory="T D + W H K",
        state="T G K",
    )
    variants = {
        "small": {"block_size": 2, "top_k": 4, "window_size": 3},
        "grouped": {"block_size": 3, "top_k": 2, "window_size": 1, "num_kv_heads": 1},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        block_size: int = 32,
        top_k: int = 8,
        window_size: int = 128,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, repeat=False)
        self.block_size, self.top_k, self.window_size = block_size, top_k, window_size
        self.gate = Glorot(dim, 3 * num_heads)
        self.beside_heads = "its gates"
        glorot(self.gate)

    def _split(self, x, context, at=None):
        """Queries carry their gates."""
        q, k, v = super()._split(x, context, at)
        gates = self.gate(x).sigmoid().unflatten(2, (-1, 3)).transpose(1, 2)
        return torch.cat([q, gates], -1), k, v

    def _select(self, q, k, v, mask):
        q, gates = q.split([k.shape[3], 3], -1)
        T, S, C, last, own = q.shape[2], k.shape[2], self.block_size, *bounds(mask, q, k)
        means = (block_means(z, C, last) for z in (k, v))
        place = torch.arange(S, device=q.device)

        def some(rows, q, gates, k, v, key_means, value_means, keys, values):
            i, cols = last[:, rows], visible_keys(mask, T, S, rows, self.window_size)
            whole, at = self._choice(q, key_means, i, own[:, rows])
            y_whole = (whole.to(v.dtype) @ value_means[:, :, None]).flatten(1, 2)
            weights, places = chosen(q, keys, at, i)
            y_chosen = read(weights, values, places)
            i, first = (z[:, None, None, :, None] for z in (i, own[:, rows] - self.window_size))
            found = scores(q.unflatten(1, (k.shape[1], -1)), k[:, :, None, cols])
            near = masked_softmax(found, (place[cols] > first) & (place[cols] <= i)).to(v.dtype)
            y_near = (near @ v[:, :, None, cols]).flatten(1, 2)
            a, b, c = gates.split(1, -1)
            return a * y_whole + b * y_chosen + c * y_near

        blocks = (in_chunks(z, C).flatten(3) for z in (k, v))
        return tiled(some, self._how(q, k, mask)["tile"], (q, gates), k, v, *means, *blocks)

    def _choice(self, q, means, last, own):
        """Weights of whole blocks, [B G r t N], and the blocks that they choose, [B G t top_k]."""
        C, block = self.block_size, torch.arange(means.shape[2], device=q.device)
        found = scores(q.unflatten(1, (means.shape[1], -1)), means[:, :, None])
        weights = masked_softmax(found, C * (block + 1) <= last[:, None, None, :, None] + 1)
        mine = own[:, None, :, None] // C
        forced = (block == 0) | (block == mine) | (block == mine - 1)
        begun = block * C <= last[:, None, :, None]
        return weights, largest(weights.detach().mean(2), begun, forced, self.top_k)

    @torch.no_grad()
    def _plan(self, x, context, mask):
        q, k, _ = self._split(x, context)
        last, own = bounds(mask, q, k)
        means = block_means(k, self.block_size, last)
        return {"chosen": self._choice(q[..., : k.shape[3]], means, last, own)[1]}
