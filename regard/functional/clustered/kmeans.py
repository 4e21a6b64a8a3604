"""Attention inside clusters of tokens (Routing Transformer; Roy et al. 2020, arXiv 2003.05997).

Queries and keys are standardised, and a token's nearest centroid is the one of largest product. Three ways of choosing
keys, for three requests:

    members   each cluster takes its `window_size` nearest queries and as many keys; outputs are averaged over clusters
    band      causal: the last `window_size` earlier tokens of the query's cluster
    lists     on two axes: each query has its own list of keys
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.clustered import lists, sorted_chunks, within_clusters
from regard.functional.clustered.normalise import standardised
from regard.functional.clustered.order import Order, band
from regard.functional.clustered.top_k import first_equal_, top_k
from regard.functional.shared.blocks import heads_of
from regard.functional.shared.implementation import Impl, cut
from regard.functional.shared.numerics import wide_type


class Counts(NamedTuple):
    """Sums of tokens and their number, each at its nearest centroid."""

    sums: Float[Tensor, "H N K"]
    counts: Float[Tensor, "H N"]

    def add(
        self, heads: slice, tokens: Float[Tensor, "b h T K"], cluster: Int[Tensor, "b h T"]
    ) -> None:
        """Cluster N is not counted."""
        sums, counts = self.sums[heads], self.counts[heads]
        h, N, K = sums.shape
        head = torch.arange(h, device=cluster.device)[:, None]
        place = (cluster + (N + 1) * head).flatten()
        more = sums.new_zeros(h * (N + 1), K)
        more.index_add_(0, place, tokens.flatten(0, 2).to(more.dtype))
        sums += more.view(h, N + 1, K)[:, :N]
        each = counts.new_ones(()).expand(place.shape)
        counts += counts.new_zeros(h * (N + 1)).scatter_add_(0, place, each).view(h, -1)[:, :N]


def nearest(z: Float[Tensor, "B H T K"], centroids: Float[Tensor, "H N K"]) -> Int[Tensor, "B H T"]:
    """The cluster of each token."""
    return _highest_(z @ centroids.transpose(-1, -2))


def _highest_(affinity: Float[Tensor, "*b T N"]) -> Int[Tensor, "*b T"]:
    affinity = affinity.to(wide_type(affinity))
    return first_equal_(affinity, affinity.amax(-1, keepdim=True)).long()


def clusters(
    sides: Sequence[Float[Tensor, "B H T K"]],
    centroids: Float[Tensor, "H N K"],
    mask: Mask = OPEN,
    *,
    counts: Counts | None = None,
    impl: Impl = "auto",
) -> Int[Tensor, "B H T"]:
    """Nearest to the sum of each token's sides; absent tokens (of the axis that `mask.valid` speaks of) have cluster N."""
    cluster = sides[0].new_empty(sides[0].shape[:3], dtype=torch.long)
    for examples, heads in heads_of(cut("clustered", impl, sides[0]), sides[0]):
        some, mu = [z[examples, heads] for z in sides], centroids[heads]
        valid = None if mask.valid is None else mask.valid[examples, None]
        affinities = [z @ mu.transpose(-1, -2) for z in some]
        cluster[examples, heads] = _present(
            _highest_(sum(affinities[1:], affinities[0].clone())), mu, valid
        )
        if counts is not None:
            for z, affinity in zip(some, affinities, strict=True):
                counts.add(heads, z, _present(_highest_(affinity), mu, valid))
    return cluster


def _present(
    cluster: Int[Tensor, "b h T"],
    centroids: Float[Tensor, "h N K"],
    valid: Bool[Tensor, "b 1 T"] | None,
) -> Int[Tensor, "b h T"]:
    return cluster if valid is None else torch.where(valid, cluster, centroids.shape[1])


def members(
    z: Float[Tensor, "B H T K"],
    centroids: Float[Tensor, "H N K"],
    window_size: int,
    mask: Mask = OPEN,
    *,
    counts: Counts | None = None,
    impl: Impl = "auto",
) -> Int[Tensor, "B H N W"]:
    """The `window_size` tokens nearest to each centroid; -1 where there are fewer."""
    size, how = min(window_size, z.shape[2]), cut("clustered", impl, z)
    index = z.new_empty(*z.shape[:2], centroids.shape[1], size, dtype=torch.long)
    for examples, heads in heads_of(how, z):
        some, mu = z[examples, heads], centroids[heads]
        affinity = mu @ some.transpose(-1, -2)
        valid = None if mask.valid is None else mask.valid[examples, None]
        if valid is not None:
            affinity = affinity.masked_fill(~valid[..., None, :], -math.inf)
        found = top_k(affinity, size, by_groups=how.tiled)
        if valid is not None:
            found = found.masked_fill(affinity.gather(-1, found) == -math.inf, -1)
        index[examples, heads] = found
        if counts is not None:
            cluster = _highest_(affinity.transpose(-1, -2))
            counts.add(heads, some, _present(cluster, mu, valid))
    return index


Assigned = dict[str, Int[Tensor, "..."]]
"""Cluster assignments: `clusters`, or `query_members` and `key_members`; of two axes `query_clusters`, and
`key_clusters` or `key_members`."""


def assign(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"] | None,
    centroids: Float[Tensor, "H N K"],
    window_size: int,
    mask: Mask = OPEN,
    *,
    cross: bool = False,
    counts: Counts | None = None,
    impl: Impl = "auto",
) -> Assigned:
    """For standardised queries and keys; k = None: the queries. Every token is counted once, but queries of no keys."""
    rules: dict[str, Any] = {"counts": counts, "impl": impl}
    sides = [q] if k is None else [q, k]
    if cross:
        keyed = None if mask.valid is None else mask.valid.any(1)[:, None].expand(-1, q.shape[2])
        near = clusters((q,), centroids, Mask(valid=keyed), **rules)
        found = {"query_clusters": near.clamp(max=centroids.shape[1] - 1)}
        if mask.causal:
            return found | {"key_clusters": clusters(sides[1:], centroids, mask, **rules)}
        return found | {"key_members": members(sides[1], centroids, window_size, mask, **rules)}
    if mask.causal:
        return {"clusters": clusters(sides, centroids, mask, **rules)}
    of = [members(z, centroids, window_size, mask, **rules) for z in sides]
    return {"query_members": of[0], "key_members": of[-1]}


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    assigned: Assigned,
    window_size: int,
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """exclude_self, on one axis: a token sees itself only where its cluster offers nothing else."""
    if "query_clusters" in assigned:
        return lists.attend(q, k, v, _lists(assigned, window_size, mask), mask=mask, scale=scale)
    rules: dict[str, Any] = {
        "mask": mask,
        "scale": scale,
        "exclude_self": exclude_self,
        "impl": impl,
    }
    if "clusters" in assigned:
        order = _band(assigned, window_size, exclude_self, cut("clustered", impl, q).tile)
        return sorted_chunks.attend(q, k, v, order=order, **rules)
    sides = assigned["query_members"], assigned["key_members"]
    return within_clusters.attend(q, k, v, *sides, **rules)


def weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    assigned: Assigned,
    window_size: int,
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
) -> Float[Tensor, "B H T S"]:
    """The weights that `attend` amounts to."""
    if "query_clusters" in assigned:
        return lists.weights(q, k, _lists(assigned, window_size, mask), mask=mask, scale=scale)
    rules: dict[str, Any] = {"mask": mask, "scale": scale, "exclude_self": exclude_self}
    if "clusters" in assigned:
        order = _band(assigned, window_size, exclude_self, tile=1)
        return sorted_chunks.weights(q, k, order=order, **rules)
    sides = assigned["query_members"], assigned["key_members"]
    return within_clusters.weights(q, k, *sides, **rules)


def _band(assigned: Assigned, window_size: int, exclude_self: bool, tile: int) -> Order:
    group = assigned["clusters"][:, :, None]
    return band(group, window_size, tile=tile, include_self=not exclude_self)


def _lists(assigned: Assigned, window_size: int, mask: Mask) -> Int[Tensor, "B H T W"]:
    """The keys of each query's cluster; causal: the last `window_size` that it may see; -1 where there are fewer."""
    queries = assigned["query_clusters"]
    if "key_members" in assigned:
        keys = assigned["key_members"]
        return keys.gather(2, queries[..., None].expand(*queries.shape, keys.shape[3]))
    keys = assigned["key_clusters"]
    T, S = queries.shape[2], keys.shape[2]
    ordered, source = keys.sort(dim=-1, stable=True)
    last = mask.last_key(T, S, keys.device)[:, None].clamp(min=-1)
    begin = torch.searchsorted(ordered, queries.contiguous())
    code = ordered * (S + 1) + source
    end = torch.searchsorted(code, queries * (S + 1) + last, right=True)
    place = end[..., None] - 1 - torch.arange(window_size, device=keys.device)
    index = source.gather(2, place.clamp(0, S - 1).flatten(2)).view(place.shape)
    return index.masked_fill(place < begin[..., None], -1)


def routed_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    centroids: Float[Tensor, "H N K"],
    window_size: int,
    mask: Mask = OPEN,
    scale: float | None = None,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Attention of standardised q and k inside clusters; T != S is cross attention, as `regard.mixers.routing` has it."""
    q, k = standardised(q), standardised(k)
    with torch.no_grad():
        cross = q.shape[2] != k.shape[2]
        assigned = assign(q, k, centroids, window_size, mask, cross=cross, impl=impl)
    return attend(q, k, v, assigned, window_size, mask=mask, scale=scale, impl=impl)
