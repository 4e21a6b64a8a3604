"""Sparse Sinkhorn attention: each block of queries sees its own block and a learned sorted one (Tay et al. 2020, arXiv 2002.11296).

    R = P(summaries of blocks)                        the sorting network, see `nn.sort_net`
    S = Sinkhorn(exp((R + noise) / temperature))      doubly stochastic by `num_iterations` steps; Gumbel noise in training
    K'_g = sum_u S_gu K_u,  V'_g = sum_u S_gu V_u     y of block g = softmax(q [K'_g; K_g]^T / sqrt(K)) [V'_g; V_g]

A summary is the sum of a block's tokens. Causal: the sum of all tokens up to the block's first, which is all that its
queries may share, and S_g a softmax over earlier blocks: Sinkhorn's columns would divide by what later blocks want.

Cost: T C K per head for blocks of C = `block_size`, and T^2 K / C for the mixing. The default C = 2 sqrt(max_len) keeps the
second below a quarter of the first; a smaller C does not, and the instance says so. State: all keys and values, and
what is sorted for the block that has begun.

Options: `join="separate"` adds two softmaxes (a public benchmark's form; the paper's formula can be read so) where the
default has one over both blocks. `sort_cut` = n: all queries see the first n sorted blocks and nothing else.
`mixture` adds full softmax attention. `sort_net="attention"` has no bound on the length. `num_kv_heads` (arXiv 2305.13245): each head of queries sorts the blocks of its
keys. No rotary positions: a sorted key is a sum over several places.

Args:
    block_size: tokens in a block
    sort_net: network that sorts the blocks
    temperature: divisor of the logits before they are balanced
    num_iterations: normalisations of rows and columns
    join: one softmax over a query's own and the sorted block, or one for each
    sort_cut: sorted blocks that all queries see; None: each block its own
    mixture: True: full softmax attention is added
"""

import math
from dataclasses import replace

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core import Above0, Mask, No, OptionError, Options
from regard.functional.cache import place
from regard.functional.rows import apart, plain_alone, side_by_side, upto, widened
from regard.functional.sinkhorn import (
    Join,
    State,
    balance,
    earlier_blocks,
    extend,
    sinkhorn_attention,
)
from regard.functional.softmax import softmax_attention
from regard.mixers._base import ALL, HeadsMixer
from regard.nn.sort_net import Kind, SortNet, block_scores, gumbel


class Sinkhorn(HeadsMixer):
    __doc__ = __doc__
    name = "sinkhorn"
    family = "sorted"
    paper = "Tay et al. 2020, arXiv 2002.11296"
    capabilities = ALL.but(
        pairwise=No("keys of several blocks are mixed before any query meets them"),
        global_tokens=No(
            "keys of several blocks are mixed, so that no single token can be shown to all"
        ),
        cross=No("a block of queries is joined with the keys of its own place"),
        any_length=No("the sorting network has one output for each block of max_len"),
        approximates="softmax",
        time="T C H K",
        state="T H K",
    )
    variants = {
        "grouped": {"block_size": 4, "num_kv_heads": 1},
        "mlp_separate": {"block_size": 3, "sort_net": "mlp", "join": "separate"},
        "attention": {"block_size": 4, "sort_net": "attention"},
        "sort_cut": {"block_size": 4, "sort_cut": 2},
        "mixture": {"block_size": 3, "mixture": True},
    }
    limits = {"softmax": ({"block_size": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        block_size: int | None = None,
        sort_net: Kind = "linear",
        temperature: Above0 = 0.75,
        num_iterations: int = 8,
        join: Join = "joint",
        sort_cut: int | None = None,
        mixture: bool = False,
        num_kv_heads: int | None = None,
    ):
        super().__init__(dim, num_heads, num_kv_heads, max_len=max_len)
        if max_len is None and (block_size is None or sort_net != "attention"):
            raise OptionError(
                'sinkhorn needs max_len: it bounds the blocks. Or block_size= with sort_net="attention"'
            )
        block_size = block_size or max(1, 2 * math.isqrt(max_len or 0))
        self.block_size = block_size
        self.temperature = temperature
        self.mixture = mixture
        self.num_iterations = num_iterations
        self._how: Options = {"block_size": block_size, "join": join, "sort_cut": sort_cut}
        self.sort_net = None
        if max_len is not None and sort_net != "attention":
            blocks = -(-max_len // block_size)
            self.beside_heads = "its sorting network"
            self.sort_net = SortNet(dim, num_heads, blocks, hidden=sort_net == "mlp")
        else:
            self.declare(any_length=True)
        if max_len is None or block_size < 2 * math.isqrt(max_len):
            self.declare(time="T C H K + T^2 H K / C", memory="T D + T^2 H / C^2")
        if sort_cut is not None:
            if join != "joint" or mixture:
                raise OptionError(
                    "sinkhorn: sort_cut leaves sorted blocks alone, so join and mixture must be left out"
                )
            why = No("the first sorted blocks hold tokens of every place")
            self.declare(causal=why, streaming=why)
        if mixture:
            self.declare(time="T^2 H K")

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x)
        y = sinkhorn_attention(q, k, v, sorting=self._sorting(x, mask), mask=mask, **self._how)
        return self.heads.merge(y + softmax_attention(q, k, v, mask=mask) if self.mixture else y)

    def _sorting(self, x: Tensor, mask: Mask) -> Float[Tensor, "B H N N"]:
        here = x.new_ones(1, x.shape[1], dtype=torch.bool) if mask.valid is None else mask.valid
        blocks, sizes = self._blocks(x), self._blocks(here.type_as(x)[..., None]).sum(2)  # b N 1
        sums, first = blocks.sum(2), blocks[:, :, 0]
        if self.sort_net is None:
            # Means of blocks are projected, as they are C times fewer than queries and keys.
            mean = sums / sizes.clamp_min(1)
            queries = self.heads.queries(first if mask.causal else mean)
            logits = block_scores(queries, self.heads.keys(mean))
        else:
            summary = sums.cumsum(1) - sums + first if mask.causal else sums
            logits = self.sort_net(summary, sums.shape[1])
        if mask.causal:
            return earlier_blocks(self._noisy(logits))
        some = None if mask.valid is None and not plain_alone() else sizes[..., 0] > 0
        return balance(self._noisy(logits), some, num_iterations=self.num_iterations)

    def _blocks(self, z: Float[Tensor, "B T K"]) -> Float[Tensor, "B N C K"]:
        C = self.block_size
        N = (z.shape[1] + C - 1) // C + plain_alone()  # exported: never 1, so that T stays free
        return F.pad(z, (0, 0, 0, N * C - z.shape[1])).unflatten(1, (N, C))

    def _noisy(self, logits: Tensor) -> Tensor:
        return (logits + (gumbel(logits) if self.training else 0.0)) / self.temperature

    def _start(self, length, max_len):
        room = -(-(max_len or 0) // self.block_size) * self.block_size
        store, block = (self.heads.zeros(len(length), n) for n in (room, self.block_size))
        (total,) = widened(store.new_zeros(len(length), self.dim))
        return State(store, store.clone(), block, block.clone(), total, length)

    def _step(self, x, state, valid, donate):
        q, k, v = self.heads.split(x, None, state.length)
        sums, new = widened(state.total, x)
        total = sums[:, None] + new.cumsum(1)
        summary = side_by_side(q) if self.sort_net is None else total.type_as(x)
        how = {"valid": valid, "join": self._how["join"], "donate": donate}
        y, after = extend(q, k, v, state, summary=summary, sort=self._scores, **how)
        if self.mixture:
            last = place(state.length, None, x.shape[1])[..., None]
            seen = upto(after.k.shape[2], x) <= last
            y = y + softmax_attention(q, after.k, after.v, mask=Mask(pairwise=seen[:, None]))
        return y, replace(after, total=total[:, -1])

    def _scores(self, summary: Tensor, k: Tensor) -> Float[Tensor, "b H G N"]:
        """Scores of blocks with keys k for the blocks that begin."""
        N = k.shape[2] // self.block_size
        if self.sort_net is not None:
            return self._noisy(self.sort_net(summary, min(N, self.sort_net.max_blocks)))
        means = k.unflatten(2, (N, -1)).mean(3)
        return self._noisy(block_scores(apart(summary, self.heads.key_dim), means))
