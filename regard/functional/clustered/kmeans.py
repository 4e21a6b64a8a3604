"""Attention inside clusters of tokens (Routing Transformer; Roy et al. 2020, arXiv 2003.05997).

A token's route is its query or key without scale and mean, and the nearest centroid is the one of largest product.
Three ways of choosing keys, for three requests:

    members   each cluster takes its `window_size` nearest queries and as many keys; outputs are averaged over clusters
    band      causal: the last `window_size` earlier tokens of the query's cluster
    lists     on two axes: each query has its own list of keys
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.clustered.assignments import MemberAttention
from regard.functional.clustered.normalised import Routes, route, routes_of
from regard.functional.clustered.order import Order, band
from regard.functional.clustered.sorted_chunks import ordered_attention
from regard.functional.clustered.top_k import first_equal_, largest
from regard.functional.shared.blocks import heads_of, rows_at
from regard.functional.softmax.dense import masked_softmax


def nearest(
    routes: Float[Tensor, "B H T K"], centroids: Float[Tensor, "H N K"]
) -> Int[Tensor, "B H T"]:
    """The cluster of each token."""
    return _highest_(routes @ centroids.transpose(-1, -2))


def _highest_(affinity: Float[Tensor, "*b T N"]) -> Int[Tensor, "*b T"]:
    affinity = affinity.to(torch.promote_types(affinity.dtype, torch.float32))
    return first_equal_(affinity, affinity.amax(-1, keepdim=True)).long()


class Census(NamedTuple):
    """Sums of routes and their number, each with its nearest centroid."""

    sums: Float[Tensor, "H N K"]
    counts: Float[Tensor, "H N"]

    def add(
        self, heads: slice, routes: Float[Tensor, "b h T K"], cluster: Int[Tensor, "b h T"]
    ) -> None:
        """Cluster N is not counted."""
        sums, counts = self.sums[heads], self.counts[heads]
        h, N, K = sums.shape
        head = torch.arange(h, device=cluster.device)[:, None]
        place = (cluster + (N + 1) * head).flatten()
        more = sums.new_zeros(h * (N + 1), K)
        more.index_add_(0, place, routes.flatten(0, 2).to(more.dtype))
        sums += more.view(h, N + 1, K)[:, :N]
        each = counts.new_ones(()).expand(place.shape)
        counts += counts.new_zeros(h * (N + 1)).scatter_add_(0, place, each).view(h, -1)[:, :N]


def clusters(
    sides: Sequence[Float[Tensor, "B H T K"]],
    centroids: Float[Tensor, "H N K"],
    mask: Mask = OPEN,
    census: Census | None = None,
) -> Int[Tensor, "B H T"]:
    """Nearest to the sum of each token's routes; absent ones (of the axis that `mask.valid` speaks of) have cluster N."""
    cluster = sides[0].new_empty(sides[0].shape[:3], dtype=torch.long)
    for examples, heads in heads_of(sides[0]):
        routes, mu = [z[examples, heads] for z in sides], centroids[heads]
        valid = None if mask.valid is None else mask.valid[examples, None]
        affinities = [side @ mu.transpose(-1, -2) for side in routes]
        cluster[examples, heads] = _present(
            _highest_(sum(affinities[1:], affinities[0].clone())), mu, valid
        )
        if census is not None:
            for side, affinity in zip(routes, affinities, strict=True):
                census.add(heads, side, _present(_highest_(affinity), mu, valid))
    return cluster


def _present(
    cluster: Int[Tensor, "b h T"],
    centroids: Float[Tensor, "h N K"],
    valid: Bool[Tensor, "b 1 T"] | None,
) -> Int[Tensor, "b h T"]:
    return cluster if valid is None else torch.where(valid, cluster, centroids.shape[1])


def members(
    routes: Float[Tensor, "B H T K"],
    centroids: Float[Tensor, "H N K"],
    window_size: int,
    mask: Mask = OPEN,
    census: Census | None = None,
) -> Int[Tensor, "B H N W"]:
    """The `window_size` tokens nearest to each centroid; -1 where there are fewer."""
    size = min(window_size, routes.shape[2])
    index = centroids.new_empty(*routes.shape[:2], centroids.shape[1], size, dtype=torch.long)
    for examples, heads in heads_of(routes):
        some, mu = routes[examples, heads], centroids[heads]
        affinity = mu @ some.transpose(-1, -2)
        valid = None if mask.valid is None else mask.valid[examples, None]
        if valid is not None:
            affinity = affinity.masked_fill(~valid[..., None, :], -math.inf)
        found = largest(affinity, size)
        if valid is not None:
            found = found.masked_fill(affinity.gather(-1, found) == -math.inf, -1)
        index[examples, heads] = found
        if census is not None:
            cluster = _highest_(affinity.transpose(-1, -2))
            census.add(heads, some, _present(cluster, mu, valid))
    return index


def routed_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    centroids: Float[Tensor, "H N K"],
    window_size: int,
    mask: Mask = OPEN,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """Attention of the routes of q and k inside clusters; T != S is cross attention, as `regard.mixers.routing` has it."""
    routes = routes_of(q), routes_of(k)
    a, b = (side.value for side in routes)
    if q.shape[2] == k.shape[2]:
        if mask.causal:
            order = cluster_band(clusters((a, b), centroids, mask), window_size)
            return ordered_attention(q, k, v, order=order, routes=routes, mask=mask, scale=scale)
        sides = (members(side, centroids, window_size, mask) for side in (a, b))
        return member_attention(q, k, v, *sides, routes=routes, mask=mask, scale=scale)
    cluster = clusters((a,), centroids)
    if mask.causal:
        index = last_of_cluster(cluster, clusters((b,), centroids, mask), window_size, mask)
    else:
        index = members_of(cluster, members(b, centroids, window_size, mask))
    return list_attention(route(q), route(k), v, index, mask=mask, scale=scale)


def cluster_band(
    cluster: Int[Tensor, "B H T"], window_size: int, *, include_self: bool = True
) -> Order:
    return band(cluster[:, :, None], window_size, include_self=include_self)


# ------------------------------------------------------------------ members


def member_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    queries: Int[Tensor, "B H N W"],
    keys: Int[Tensor, "B H N W"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    routes: tuple[Routes, Routes] | None = None,
) -> Float[Tensor, "B H T V"]:
    """Dense attention in each cluster; a token's output is the mean over the clusters that have it and offer it a key.

    A token of no cluster gets zero. exclude_self: a token sees itself only where its cluster offers nothing else.
    routes: of q and k, if these are what the scores are made of.
    """
    allowed = _member_pairs(queries, keys, mask, exclude_self)
    made = [None] * 4 if routes is None else [z.view_as(z) for side in routes for z in side]
    return MemberAttention.apply(
        # Views, as torch.compile takes no tensor twice.
        *(z.to(v.dtype).view_as(z) for z in (q, k, v)),
        *(index.clamp(min=0) for index in (queries, keys)),
        allowed,
        1 / math.sqrt(q.shape[-1]) if scale is None else scale,
        *made,
    )


def member_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    queries: Int[Tensor, "B H N W"],
    keys: Int[Tensor, "B H N W"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
) -> Float[Tensor, "B H T T"]:
    """The weights that `member_attention` amounts to: it is given one value for each token."""
    B, H, T = q.shape[:3]
    each = torch.eye(T, dtype=q.dtype, device=q.device).expand(B, H, T, T)
    return member_attention(
        q, k, each, queries, keys, mask=mask, scale=scale, exclude_self=exclude_self
    )


def _member_pairs(
    queries: Int[Tensor, "B H N W"], keys: Int[Tensor, "B H N W"], mask: Mask, exclude_self: bool
) -> Bool[Tensor, "B H N w W"] | None:
    """Pairs of members that may meet; None where all may."""
    if mask.valid is None and mask.pairwise is None and not mask.causal and not exclude_self:
        return None
    i, j = queries[..., :, None], keys[..., None, :]
    allowed = (i >= 0) & (j >= 0)
    if mask.causal:
        allowed = allowed & (j <= i)
    if mask.pairwise is not None:
        allowed = allowed & _pairs_at(mask.pairwise, i.clamp(min=0), j.clamp(min=0))
    if exclude_self:
        others = allowed & (i != j)
        allowed = torch.where(others.any(-1, keepdim=True), others, allowed)
    return allowed


def _pairs_at(pairwise: Bool[Tensor, "b h T S"], i: Tensor, j: Tensor) -> Tensor:
    B, H = i.shape[:2]
    spread = (-1, *[1] * (i.dim() - 2))
    b = torch.arange(B, device=i.device).view(-1, 1, *spread[1:])
    h = torch.arange(H, device=i.device).view(1, *spread)
    return pairwise.expand(B, H, -1, -1)[b, h, i, j]


# ------------------------------------------------------------------ lists


def members_of(
    cluster: Int[Tensor, "B H T"], keys: Int[Tensor, "B H N W"]
) -> Int[Tensor, "B H T W"]:
    """The keys of each query's cluster."""
    return keys.gather(2, cluster[..., None].expand(*cluster.shape, keys.shape[3]))


def last_of_cluster(
    queries: Int[Tensor, "B H T"], keys: Int[Tensor, "B H S"], window_size: int, mask: Mask
) -> Int[Tensor, "B H T W"]:
    """The last `window_size` keys of each query's cluster that it may see causally; -1 where there are fewer."""
    T, S = queries.shape[2], keys.shape[2]
    ordered, source = keys.sort(dim=-1, stable=True)
    last = mask.last_key(T, S, keys.device)[:, None].clamp(min=-1)
    begin = torch.searchsorted(ordered, queries.contiguous())
    code = ordered * (S + 1) + source
    end = torch.searchsorted(code, queries * (S + 1) + last, right=True)
    place = end[..., None] - 1 - torch.arange(window_size, device=keys.device)
    index = source.gather(2, place.clamp(0, S - 1).flatten(2)).view(place.shape)
    return index.masked_fill(place < begin[..., None], -1)


def list_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    index: Int[Tensor, "B H T W"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over a list of keys for each query (-1: none); `mask.pairwise` restricts it further."""
    weights = _list_weights(q, k, index, mask, scale)
    values = _listed(v, index)
    return (weights[..., None, :] @ values)[..., 0, :]


def list_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    index: Int[Tensor, "B H T W"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
) -> Float[Tensor, "B H T S"]:
    weights = _list_weights(q, k, index, mask, scale)
    dense = weights.new_zeros(*index.shape[:3], k.shape[2])
    return dense.scatter_add(3, index.clamp(min=0), weights)


def _list_weights(q, k, index, mask: Mask, scale: float | None) -> Float[Tensor, "B H T W"]:
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * (_listed(k, index) @ q[..., None])[..., 0]
    allowed = index >= 0
    if mask.pairwise is not None:
        i = torch.arange(q.shape[2], device=q.device)[:, None]
        allowed = allowed & _pairs_at(mask.pairwise, i.expand_as(index), index.clamp(min=0))
    return masked_softmax(scores, allowed)


def _listed(z: Float[Tensor, "B H S K"], index: Int[Tensor, "B H T W"]) -> Tensor:
    """[B H S K] -> [B H T W K]"""
    flat = index.clamp(min=0).flatten(0, 1)
    rows = rows_at(z.flatten(0, 1), flat.flatten(1)).unflatten(1, flat.shape[1:])
    return rows.unflatten(0, index.shape[:2])
