"""Attention inside clusters of tokens (Routing Transformer; Roy et al. 2020, arXiv 2003.05997).

Queries and keys are standardised, and a token's nearest centroid is the one of largest product. Three ways of choosing
keys, for three requests:

    members   each cluster takes its `window_size` nearest queries and as many keys; outputs are averaged over clusters
    clusters  causal: the last `window_size` earlier tokens of the query's cluster, see `functional.sorted`
    lists     on two axes: each query has its own list of keys
"""

import math

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import OPEN, Keys, Mask, Mixed, Queries, Values
from regard.functional.rows import Impl, masked_softmax, scores, take_each, upto
from regard.functional.sorted import last_of_group, pairs_at, sorted_attention

Centers = Float[Tensor, "H N K"]  # of the clusters of each head


def standardised(z: Float[Tensor, "*b K"]) -> Float[Tensor, "*b K"]:
    """Layer norm without gain and bias: on the sphere of radius sqrt(K)."""
    return F.layer_norm(z, z.shape[-1:])


def nearest(z: Queries, centroids: Centers) -> Int[Tensor, "B H T"]:
    """The cluster of each token."""
    return scores(z, centroids.expand(z.shape[0], -1, -1, -1), 1.0).argmax(-1)


def members(
    z: Queries, centroids: Centers, window_size: int, valid: Bool[Tensor, "B T"] | None
) -> Int[Tensor, "B H N W"]:
    """The `window_size` tokens nearest to each centroid; -1 where there are fewer."""
    affinity = scores(centroids.expand(z.shape[0], -1, -1, -1), z, 1.0)
    if valid is not None:
        affinity = affinity.masked_fill(~valid[:, None, None], -math.inf)
    top, index = affinity.topk(torch.sym_min(window_size, z.shape[2]), -1, sorted=False)
    return index if valid is None else index.masked_fill(top == -math.inf, -1)


Assigned = dict[str, Int[Tensor, "..."]]
"""Cluster assignments: `clusters`, or `query_members` and `key_members`; of two axes `query_clusters`, and
`key_clusters` or `key_members`."""


def assign(
    q: Queries, k: Keys, centroids: Centers, window_size: int, mask: Mask, *, cross: bool
) -> Assigned:
    """Assigns standardised queries and keys, which may be one tensor, to clusters."""
    valid = mask.valid
    if not mask.causal:
        of_keys = members(k, centroids, window_size, valid)
        if cross:
            return {"query_clusters": nearest(q, centroids), "key_members": of_keys}
        of_queries = of_keys if k is q else members(q, centroids, window_size, valid)
        return {"query_members": of_queries, "key_members": of_keys}
    cluster = nearest(k if cross else q + k, centroids)
    if valid is not None:
        cluster = torch.where(valid[:, None], cluster, centroids.shape[1])
    if cross:
        return {"query_clusters": nearest(q, centroids), "key_clusters": cluster}
    return {"clusters": cluster}


def attend(
    q: Queries,
    k: Keys,
    v: Values,
    assigned: Assigned,
    window_size: int,
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
    exclude_self: bool = False,
    impl: Impl = "auto",
) -> Mixed:
    """exclude_self, on one axis: a token sees itself only where its cluster offers nothing else."""
    if "query_clusters" in assigned:
        return _listed(q, k, v, _lists(assigned, window_size, mask), mask, scale)
    if "clusters" in assigned:
        return sorted_attention(
            q,
            k,
            v,
            group=assigned["clusters"][:, :, None],
            window=last_of_group(window_size, include_self=not exclude_self),
            mask=mask,
            scale=scale,
            exclude_self=exclude_self,
            impl=impl,
        )
    sides = assigned["query_members"], assigned["key_members"]
    return within(q, k, v, *sides, mask=mask, scale=scale, exclude_self=exclude_self)


def within(
    q: Tensor, k: Tensor, v: Tensor, queries, keys, *, mask: Mask, scale, exclude_self
) -> Mixed:
    """A token's output is the mean over the clusters that have it among their `queries` and offer it a key; of no cluster: zero."""
    B, H, T, V = *q.shape[:3], v.shape[3]
    i, j = queries[..., None], keys[..., None, :]
    allowed = (i >= 0) & (j >= 0)
    if mask.causal:
        allowed = allowed & (j <= i)
    if mask.pairwise is not None:
        allowed = allowed & pairs_at(mask.pairwise, i, j)
    if exclude_self:
        others = allowed & (i != j)
        allowed = torch.where(others.any(-1, keepdim=True), others, allowed)
    queries, keys = queries.clamp_min(0), keys.clamp_min(0)
    a = masked_softmax(scores(take_each(q, queries), take_each(k, keys), scale), allowed)
    y = (a.type_as(v) @ take_each(v, keys)).flatten(0, 3)
    at = (queries + T * upto(B * H, q).view(B, H, 1, 1)).flatten()
    some = allowed.any(-1).expand(queries.shape).flatten().type_as(y)
    total = y.new_zeros(B * H * T, V).index_add(0, at, y)
    times = y.new_zeros(B * H * T).index_add(0, at, some)
    return (total / times.clamp_min(1)[:, None]).view(B, H, T, V)


def _lists(assigned: Assigned, window_size: int, mask: Mask) -> Int[Tensor, "B H T W"]:
    """The keys of each query's cluster; causal: the last `window_size` that it may see; -1 where there are fewer."""
    queries = assigned["query_clusters"]
    if "key_members" in assigned:
        return take_each(assigned["key_members"], queries)
    keys = assigned["key_clusters"]
    T, S = queries.shape[2], keys.shape[2]
    ordered, source = keys.sort(dim=-1, stable=True)
    last = mask.last_key(T, S, keys.device)[:, None].clamp_min(-1)
    begin = torch.searchsorted(ordered, queries.contiguous())
    end = torch.searchsorted(ordered * (S + 1) + source, queries * (S + 1) + last, right=True)
    place = end[..., None] - 1 - upto(window_size, keys)
    index = source.gather(2, place.clamp(0, S - 1).flatten(2)).view(place.shape)
    return index.masked_fill(place < begin[..., None], -1)


def _listed(q, k, v, index: Int[Tensor, "B H T W"], mask: Mask, scale: float | None) -> Tensor:
    """Each query over its own list of keys; -1: none."""
    allowed = (index >= 0)[..., None, :]
    if mask.pairwise is not None:
        i = upto(q.shape[2], q)[:, None, None]
        allowed = allowed & pairs_at(mask.pairwise, i, index[..., None, :])
    at = index.clamp_min(0)
    a = masked_softmax(scores(q[..., None, :], take_each(k, at), scale), allowed)
    return (a.type_as(v) @ take_each(v, at))[..., 0, :]


def routed_attention(
    q: Queries,
    k: Keys,
    v: Values,
    *,
    centroids: Centers,
    window_size: int,
    mask: Mask = OPEN,
    scale: float | None = None,
    impl: Impl = "auto",
) -> Mixed:
    """Attention of standardised q and k inside clusters; T != S is cross attention, as `regard.mixers.routing` has it.

    window_size: tokens in a cluster.
    """
    q, k = standardised(q), standardised(k)
    with torch.no_grad():
        assigned = assign(q, k, centroids, window_size, mask, cross=q.shape[2] != k.shape[2])
    return attend(q, k, v, assigned, window_size, mask=mask, scale=scale, impl=impl)
