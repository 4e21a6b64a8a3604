"""Reformer: locality-sensitive hashing attention with shared queries and keys (Kitaev et al. 2020, arXiv 2001.04451).

    q_i = x_i W_QK,   k_j = q_j / |q_j|,   h(x) = argmax([x R; -x R]),   R random, for each of `num_hashes` rounds
    y_i = softmax(q_i k_j) v_j   over   P_i = union over rounds of { j != i : h(j) = h(i), j near in the sorted order }

Tokens are sorted by (bucket, position). Bidirectional: the order is cut into chunks, and a query looks at its own and
the one before. Causal: it looks at the last `chunk_size` earlier tokens of its bucket. A token sees itself only where
no round offers it another.

Cost: num_hashes T chunk_size (K + V) per head, and a sort. State: the last `chunk_size` keys and values of every bucket.
`num_buckets` is a constant: by default two for each chunk of `max_len` tokens. A pair of numbers stands for two hashes
whose product counts, with far fewer rotations.

Unlike the paper: causal chunks are not the default, because later tokens move their borders and so decide which earlier
ones a query sees; `published_causal=True` gives them (then always, for every request, so `causal` is refused). The first
chunk has none before it; the official code wraps round to the last. `same_bucket_only=False, dedup=False` are the
official code's (no bucket test; a pair met in several rounds counts as often). No dropout on weights. No `num_kv_heads`: keys are
queries, one for one. No rotary positions: tokens are hashed by what they hold, and turned alike ones would part.

Args:
    num_hashes: rounds of hashing, whose results are joined
    chunk_size: tokens in a chunk
    num_buckets: hash buckets of a round; None: from the length and the chunk
    chunks_before: chunks before a token's own that it sees
    chunks_after: chunks after a token's own that it sees
    same_bucket_only: True: a query sees keys of its own bucket alone
    dedup: True: a pair that several rounds find counts once
    published_causal: True: the published causal form, which leaks later tokens
    seed: seed of the random numbers; None: from torch's generator
"""

import math
from dataclasses import replace
from functools import partial

import torch
from jaxtyping import Int
from torch import Tensor

from regard.core import Count, No, OptionError, Options, Seed
from regard.functional.lsh import angular_hash, sort_plan
from regard.functional.rings import empty, extend
from regard.functional.rows import Impl
from regard.functional.sorted import sorted_attention
from regard.mixers._base import ALL, HeadsMixer
from regard.nn.starts import normal


class Reformer(HeadsMixer):
    __doc__ = __doc__
    name = "reformer"
    family = "hashed"
    paper = "Kitaev et al. 2020, arXiv 2001.04451"
    operations = ("sorted",)
    capabilities = ALL.but(
        cross=No("its keys are the queries of the same tokens"),
        approximates="softmax",
        time="R T W H K",
        state="R N W H K",
        finite_to=10.0,
    )
    variants = {
        "small": {"num_buckets": 4, "chunk_size": 3, "num_hashes": 2},
        "factorised": {"num_buckets": (2, 4), "chunk_size": 2, "num_hashes": 3},
        "official": {"chunk_size": 3, "same_bucket_only": False, "dedup": False, "num_hashes": 2},
        "both_sides": {"num_buckets": 2, "chunk_size": 2, "chunks_before": 2, "chunks_after": 1},
        "counted": {"num_buckets": 4, "chunk_size": 3, "num_hashes": 3, "dedup": False},
        "published_causal": {"num_buckets": 4, "chunk_size": 3, "published_causal": True},
    }
    limits = {
        "softmax": ({"num_buckets": 1, "chunk_size": 64, "num_hashes": 1}, {"shared_qk": True})
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        num_hashes: int = 2,
        chunk_size: int = 64,
        num_buckets: int | tuple[int, ...] | None = None,
        chunks_before: Count = 1,
        chunks_after: Count = 0,
        same_bucket_only: bool = True,
        dedup: bool = True,
        published_causal: bool = False,
        scale: float = 1.0,
        seed: Seed | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, max_len=max_len, shared_qk=True, impl=impl)
        self.num_hashes = num_hashes
        self.chunk_size = chunk_size
        self.seed = seed
        self.factors = _factors(num_buckets, max_len, chunk_size)
        self.published_causal = published_causal
        self._sort = partial(
            sort_plan,
            chunk_size=chunk_size,
            chunks_before=chunks_before,
            chunks_after=chunks_after,
            same_bucket_only=same_bucket_only,
        )
        self._rules: Options = {"scale": scale, "exclude_self": True, "count_once": dedup}
        for n, factor in enumerate(self.factors):
            shape = (num_hashes, num_heads, self.heads.head_dim, factor // 2)
            self.register_buffer(f"rotations_{n}", torch.empty(shape))
        self.reset_parameters()
        if published_causal:
            why = No("later tokens move the borders of chunks, and so what earlier queries see")
            one_way = No("published_causal=True lets no token see later ones")
            self.declare(causal=why, streaming=why, global_tokens=one_way)
        elif not same_bucket_only:
            why = No(
                "without same_bucket_only the chunks decide what a query sees, and later tokens move their borders"
            )
            self.declare(causal=why, streaming=why)

    def reset_parameters(self) -> None:
        for n, rotation in enumerate(self.buffers(recurse=False)):
            seed = None if self.seed is None else self.seed + n
            rotation.copy_(normal(*rotation.shape, seed=seed))

    def mix(self, x, context, mask):
        q, k, v, buckets = self._hashed(x)
        group, window = self._sort(buckets, mask=mask)
        mask = replace(mask, causal=mask.causal or self.published_causal)
        how = {"group": group, "window": window, "mask": mask, **self._rules}
        return self.heads.merge(sorted_attention(q, k, v, impl=self.impl, **how))

    def _hashed(
        self, x: Tensor, after: Int[Tensor, "B"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """q, k, v and buckets [B H R T], which autocast does not move."""
        q, k, v = self.heads.split(x, None, after)
        again = partial(self.heads.queries, after=after)
        return q, k, v, self.heads.decided(self._hash, q, again, x)

    def _hash(self, q: Tensor) -> Tensor:
        if self.factors == (1,):
            return q.new_zeros(*q.shape[:2], self.num_hashes, q.shape[2], dtype=torch.long)
        return angular_hash(q, [*self.buffers(recurse=False)])

    def _start(self, length, max_len):
        sizes = self.num_hashes, math.prod(self.factors), self.chunk_size
        return empty(self.heads.zeros(len(length), 0), *sizes)

    def _step(self, x, state, valid, donate):
        q, k, v, group = self._hashed(x, state.length)
        if valid is not None:
            group = torch.where(valid[:, None, None, :], group, state.k.shape[3] - 1)
        return extend(q, k, v, group, state, valid=valid, donate=donate, **self._rules)

    def _plan(self, x, context, mask):
        return {"buckets": self._hashed(x)[3]}


def _factors(
    num_buckets: int | tuple[int, ...] | None, max_len: int | None, chunk_size: int
) -> tuple[int, ...]:
    """The numbers of buckets of the hashes that are combined, each 1 or even."""
    if num_buckets is None:
        if max_len is None:
            raise OptionError(
                "reformer needs num_buckets or max_len: buckets are a constant, never the current length's"
            )
        return (2 * -(-max_len // chunk_size),)
    factors = (num_buckets,) if isinstance(num_buckets, int) else num_buckets
    if not factors or (factors != (1,) and any(n % 2 for n in factors)):
        raise OptionError(
            f"reformer: num_buckets ({num_buckets!r}) must be 1, even, or a tuple of even numbers: each rotation "
            "gives a bucket and its opposite"
        )
    return factors
