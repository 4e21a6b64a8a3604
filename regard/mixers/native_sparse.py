"""Native sparse attention, NSA (Yuan et al. 2025, arXiv 2502.11089): compressed blocks, a few selected blocks and a window, under gates.

    y_i = concat_h( g1 attend(q, one key and value of each block) + g2 attend(q, keys of `top_k` blocks) + g3 attend(q, last `window_size` keys) ) W_out
    g = sigmoid(W_g x + b_g), of each head and branch;   a block's key: the mean of its keys, or W_2 gelu(W_1 [k_1 + p_1; ..; k_C + p_C] + b_1) + b_2

A block counts in the first branch from its last token on. Its weights there, averaged over the heads that share keys, choose the blocks of the second, after the first block, the own one
and the one before. Cost: T^2 / C (K + V) and T (C top_k + window_size) (K + V) a head, C = `block_size`. A stream keeps keys and values, and compresses them anew. As in fla-org's code and
unlike the paper, blocks do not overlap and are those that are selected, and the branches share keys and values. `num_kv_heads` (arXiv 2305.13245): one choice for each.

Args:
    block_size: tokens of a block of keys
    top_k: blocks that the second branch reads
    window_size: keys that the third branch reads, the query's own among them
    compress: "mean", as in fla-org's code, or "learned", as in the paper: by networks of keys and of values, which all heads share
"""

from typing import Literal

import torch
from torch import nn

from regard.core import No
from regard.functional.rows import Impl, apart, in_chunks
from regard.functional.selected import bounds, gated_blocks, of_blocks
from regard.mixers._selected import SelectedMixer
from regard.nn.length_projection import BlockProjection
from regard.nn.starts import projection


class NativeSparse(SelectedMixer):
    __doc__ = __doc__
    name = "native_sparse"
    paper = "Yuan et al. 2025, arXiv 2502.11089"
    capabilities = SelectedMixer.capabilities.but(
        bidirectional=No("its blocks and its window end at the query"),
        pairwise=No("a block is read as one key, of keys that a query may not see, too"),
        cross=No("its own block and its window are of one sequence"),
        positions=frozenset({"absolute"}),
        approximates=None,
    )
    variants = {
        "small": {"block_size": 2, "top_k": 4, "window_size": 3},
        "grouped": {"block_size": 3, "top_k": 2, "window_size": 1, "num_kv_heads": 1},
        "learned": {"block_size": 3, "top_k": 2, "window_size": 2, "compress": "learned"},
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
        compress: Literal["mean", "learned"] = "mean",
        impl: Impl = "auto",
    ):
        super().__init__(top_k, block_size, dim, num_heads, num_kv_heads, impl)
        self.window_size = window_size
        self.gate = projection(dim, 3 * num_heads, bias=0.0)
        self.beside_heads = "its gates"
        self.compress = nn.ModuleList()
        if compress == "learned":
            self.compress.extend(BlockProjection(block_size, self.heads.head_dim) for _ in "kv")
            self.declare(attention_map=No("what it reads of a block is no sum of its values"))

    def _split(self, x, context, at=None):
        """Queries carry their gates."""
        q, k, v = super()._split(x, context, at)
        return torch.cat([q, apart(self.gate(x).sigmoid(), 3)], -1), k, v

    def _blocks(self, k, v):
        """One key, and one value, of each block."""
        k, v = (in_chunks(z, self.block_size) for z in (k, v))
        if not self.compress:
            return k.mean(3), v.mean(3)
        of_keys, of_values = self.compress
        return of_keys(k), of_values(v)

    def _select(self, q, k, v, mask):
        q, gates = q.split([k.shape[3], 3], -1)
        how = self._how(q, k, mask) | {"mask": mask, "window": self.window_size}
        return gated_blocks(q, gates, k, v, *self._blocks(k, v), **how)

    @torch.no_grad()
    def _plan(self, x, context, mask):
        q, k, v = self._split(x, context)
        sizes = self.top_k, self.block_size, *bounds(mask, q, k)
        return {"chosen": of_blocks(q[..., : k.shape[3]], self._blocks(k, v)[0], *sizes)[1]}
