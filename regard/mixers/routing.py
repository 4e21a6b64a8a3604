"""Routing attention: tokens attend inside clusters that online k-means keeps (Roy et al. 2020, arXiv 2003.05997).

    q^ = LN(q), k^ = LN(k)        no gain, no bias: on the sphere of radius sqrt(K)
    cluster c:  the `window_size` = W queries and the W keys of largest q^ mu_c and k^ mu_c
    y_i = mean over the clusters that have i of   softmax_j(q^_i k^_j / sqrt(K)) v_j,  j among the keys of the cluster

A token of no cluster gets zero. mu moves by moving averages, see `nn.centroids`, in `after_step`.

Cost: T N K + N W^2 K per head. N = `num_clusters` and W are constants, by default sqrt(max_len) / 2 and what covers max_len
then (the official models lie near that). State: the last W keys and values of every cluster.

Unlike the paper: balanced clusters are not the causal form, because later tokens push earlier ones out of them. Causal, a
token belongs to the nearest centroid of q^ + k^ and sees the last W earlier tokens of it, and itself. The paper's form is
`published_causal=True` (then always, for every request, so `causal` is refused). With a context each query goes to its
nearest centroid alone, as its neighbours may be later ones, and sees the W keys nearest to that centroid (causal: the
last W of its keys). `shared_qk=True` makes keys of the queries, as the official causal code does; `scale=1` is its scale.
`attend_raw=True` clusters by q^, k^ and attends with q, k. The commitment loss is a method of its own, for the caller to
add with weight 1e-4: mixers have no losses. Half of the heads being local, as the paper advises, is `head_mix`'s business.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import OPEN, Capabilities, Mask, Mixer, No, Observation, OptionError
from regard.core.shapes import check_positive
from regard.functional.clustered.cache import empty_rings, extend_rings
from regard.functional.clustered.kmeans import (
    Census,
    cluster_band,
    clusters,
    last_of_cluster,
    list_attention,
    list_weights,
    member_attention,
    member_weights,
    members,
    members_of,
    nearest,
)
from regard.functional.clustered.normalise import unit
from regard.functional.clustered.normalised import Routes, route, routes_of
from regard.functional.clustered.sorted_chunks import ordered_attention, ordered_weights
from regard.functional.shared.cache import advance
from regard.nn.centroids import Centroids
from regard.nn.full_precision import in_full_precision
from regard.nn.heads import Heads


class ContextState(NamedTuple):
    k: Float[Tensor, "B H S K"]
    v: Float[Tensor, "B H S V"]
    members: Int[Tensor, "B H N W"]
    length: Int[Tensor, "B"]


class Routing(Mixer):
    name = "routing"
    family = "routed"
    paper = "Roy et al. 2020, arXiv 2003.05997"
    capabilities = Capabilities(
        causal=True,
        pairwise=True,
        global_tokens=No("an output is a mean over clusters, and a global token belongs to none"),
        cross=True,
        streaming="exact",
        attention_map=True,
        positions=frozenset({"absolute"}),
        approximates="softmax",
        time="T N H K + N W^2 H K",
        memory="T D",
        state="N W H K",
    )
    variants = {
        "small": {"num_clusters": 3, "window_size": 4},
        "shared_qk": {"num_clusters": 3, "window_size": 4, "shared_qk": True, "allow_self": False},
        "raw": {"num_clusters": 2, "window_size": 3, "attend_raw": True},
        "published_causal": {
            "num_clusters": 3,
            "window_size": 5,
            "published_causal": True,
            "shared_qk": True,
            "allow_self": False,
            "scale": 1.0,
        },
    }
    limits = {"softmax": ({"num_clusters": 1, "window_size": 64, "attend_raw": True}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        num_clusters: int | None = None,
        window_size: int | None = None,
        shared_qk: bool = False,
        allow_self: bool = True,
        attend_raw: bool = False,
        scale: float | None = None,
        decay: float = 0.999,
        published_causal: bool = False,
        seed: int | None = None,
    ):
        super().__init__(dim, max_len=max_len)
        num_clusters, window_size = _sizes(num_clusters, window_size, max_len)
        self.num_heads, self.num_clusters, self.window_size = num_heads, num_clusters, window_size
        self.heads = Heads(dim, num_heads, shared_qk=shared_qk)
        self.centroids = Centroids(
            num_heads, num_clusters, self.heads.head_dim, decay=decay, seed=seed
        )
        self.shared_qk, self.allow_self, self.attend_raw = shared_qk, allow_self, attend_raw
        self.scale, self.published_causal = scale, published_causal
        if shared_qk:
            self.declare(cross=No("its keys are the queries of the same tokens"))
        if published_causal:
            why = "later tokens push earlier ones out of the clusters"
            self.declare(causal=No(why), streaming=No(why))
            self.declare(cross=No("its clusters compare positions of one axis"))

    def mix(self, x, context, mask):
        q, k, v = self._split(x, context)
        routes = self._routes(q, k)
        census = self.centroids.census() if self.training else None
        plan = self._plan_of(x, context, routes, mask, census)
        y = self._attend(q, k, v, routes, plan, mask, context is not None)
        if census is not None:
            y = self.centroids.tally(y, census)
        return self.heads.merge(y)

    def commitment_loss(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S D"] | None = None,
        mask: Mask = OPEN,
    ) -> Float[Tensor, ""]:
        """mean |q^ - mu|^2 + mean |k^ - mu|^2 to the nearest centroids, which get no gradient; the official weight is 1e-4."""
        self._check_request(x, context, mask)
        sources = [(self.heads.queries, x, mask if context is None else OPEN)]
        if not self.shared_qk:
            sources.append((self.heads.keys, x if context is None else context, mask))
        total = x.new_zeros(())
        for project, tokens, present in sources:
            valid = tokens.new_ones(tokens.shape[:2], dtype=torch.bool)
            valid = valid if present.valid is None else present.valid
            routes = route(project(torch.where(valid[..., None], tokens, tokens.new_zeros(()))))
            mu = self._centroids_of(nearest(routes, self.centroids.value))
            distance = (routes - mu).square().mean(-1) * valid[:, None]
            total = total + distance.sum() / (valid.sum().clamp(min=1) * self.num_heads)
        return total

    def _centroids_of(self, cluster: Int[Tensor, "B H T"]) -> Float[Tensor, "B H T K"]:
        head = torch.arange(self.num_heads, device=cluster.device)[:, None]
        return self.centroids.value[head, cluster]

    def after_step(self) -> None:
        self.centroids.update()

    def _split(self, x: Tensor, context: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        q = self.heads.queries(x)
        source = x if context is None else context
        return q, q if self.shared_qk else self.heads.keys(source), self.heads.values(source)

    def _routes(self, q: Tensor, k: Tensor) -> tuple[Routes, Routes]:
        routes = routes_of(q)
        return routes, routes if self.shared_qk else routes_of(k)

    def _plan_of(
        self,
        x,
        context,
        routes: tuple[Routes, Routes],
        mask: Mask,
        census: Census | None = None,
    ) -> dict[str, Int[Tensor, "..."]]:
        """Who belongs to which cluster, for the kind of request; the census counts every token once."""
        mu, W = self.centroids.value, self.window_size
        source = x if context is None else context

        def of_queries(decide):
            return self._decided(decide, routes[0].value, self._query_routes, x)

        def of_keys(decide):
            return self._decided(decide, routes[1].value, self._key_routes, source)

        if context is not None:
            plan = {"query_clusters": of_queries(lambda q: clusters((q,), mu, census=census))}
            if mask.causal:
                found = of_keys(lambda k: clusters((k,), mu, mask, census))
                return plan | {"key_clusters": found}
            return plan | {"key_members": of_keys(lambda k: members(k, mu, W, mask, census))}
        if mask.causal:
            sides = (routes[0].value,) if self.shared_qk else tuple(z.value for z in routes)
            both = self._decided(
                lambda sides: clusters(sides, mu, mask, census), sides, self._side_routes, x
            )
            return {"clusters": both}
        mine = of_queries(lambda q: members(q, mu, W, mask, census))
        if self.shared_qk:
            return {"query_members": mine, "key_members": mine}
        theirs = of_keys(lambda k: members(k, mu, W, mask, census))
        return {"query_members": mine, "key_members": theirs}

    def _decided(self, decide, routes, project, x: Tensor) -> Int[Tensor, "..."]:
        dtype = self.heads.query.weight.dtype
        return in_full_precision(decide, routes, project=project, x=x, dtype=dtype)

    def _query_routes(self, x: Tensor) -> Tensor:
        return route(self.heads.queries(x))

    def _key_routes(self, x: Tensor) -> Tensor:
        return route(self.heads.keys(x))

    def _side_routes(self, x: Tensor) -> tuple[Tensor, ...]:
        mine = self._query_routes(x)
        return (mine,) if self.shared_qk else (mine, self._key_routes(x))

    def _attend(
        self, q, k, v, routes: tuple[Routes, Routes], plan, mask: Mask, is_cross: bool
    ) -> Tensor:
        if is_cross:
            index = self._lists(plan, mask)
            return list_attention(*self._content(q, k), v, index, mask=mask, scale=self.scale)
        rules: dict[str, Any] = {"scale": self.scale, "exclude_self": not self.allow_self}
        if self.attend_raw:
            q, k = self._content(q, k)
        else:
            rules["routes"] = routes
        if mask.causal:
            return ordered_attention(
                q, k, v, order=self._band(plan["clusters"]), mask=mask, **rules
            )
        sides = plan["query_members"], plan["key_members"]
        return member_attention(q, k, v, *sides, mask=self._published(mask), **rules)

    def _content(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """What the scores are made of."""
        if self.attend_raw:
            return q, unit(k) if self.shared_qk else k
        routes = route(q)
        return routes, routes if self.shared_qk else route(k)

    def _band(self, clusters: Tensor):
        return cluster_band(clusters, self.window_size, include_self=self.allow_self)

    def _lists(self, plan: dict[str, Tensor], mask: Mask) -> Int[Tensor, "B H T W"]:
        if mask.causal:
            sides = plan["query_clusters"], plan["key_clusters"]
            return last_of_cluster(*sides, self.window_size, mask)
        return members_of(plan["query_clusters"], plan["key_members"])

    def _published(self, mask: Mask) -> Mask:
        return replace(mask, causal=True) if self.published_causal else mask

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.heads.value.weight
        if context is not None:
            q, k, v = self._split(context[:, :1], context)
            routes = self._routes(q, k)
            found = self._plan_of(context[:, :1], context, routes, Mask(valid=valid))
            length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
            return ContextState(k, v, found["key_members"], length)
        return empty_rings(
            weight,
            batch_size,
            self.num_heads,
            self.heads.head_dim,
            1,
            self.num_clusters,
            self.window_size,
        )

    def _extend(self, x, state, valid, donate):
        length = advance(state.length, valid, x.shape[1])
        if isinstance(state, ContextState):
            q, mu = self.heads.queries(x), self.centroids.value
            nearby = self._decided(
                lambda q: clusters((q,), mu), routes_of(q).value, self._query_routes, x
            )
            index = members_of(nearby, state.members)
            y = list_attention(*self._content(q, state.k), state.v, index, scale=self.scale)
            return self.heads.merge(y), state._replace(length=length)
        q, k, v = self._split(x, None)
        mask = Mask(causal=True, valid=valid, compact=True)
        group = self._plan_of(x, None, self._routes(q, k), mask)["clusters"][:, :, None]
        y, after = extend_rings(
            *self._content(q, k),
            v,
            group,
            state,
            scale=self.scale,
            exclude_self=not self.allow_self,
            donate=donate,
        )
        return self.heads.merge(y), after._replace(length=length)

    def _observe(self, x, context, mask):
        q, k, v = self._split(x, context)
        plan = self._plan_of(x, context, self._routes(q, k), mask)
        q, k = self._content(q, k)
        rules: dict[str, Any] = {"scale": self.scale, "exclude_self": not self.allow_self}
        if context is not None:
            weights = list_weights(q, k, self._lists(plan, mask), mask=mask, scale=self.scale)
        elif mask.causal:
            weights = ordered_weights(q, k, order=self._band(plan["clusters"]), mask=mask, **rules)
        else:
            sides = plan["query_members"], plan["key_members"]
            weights = member_weights(q, k, *sides, mask=self._published(mask), **rules)
        return Observation(q, k, v, weights, weights @ v)

    def _plan(self, x, context, mask):
        q, k, _ = self._split(x, context)
        return self._plan_of(x, context, self._routes(q, k), mask)


def _sizes(
    num_clusters: int | None, window_size: int | None, max_len: int | None
) -> tuple[int, int]:
    """Constants: sqrt(max_len) / 2 clusters, and windows that cover max_len tokens together."""
    if max_len is None and (num_clusters is None or window_size is None):
        raise OptionError(
            "routing needs max_len, or num_clusters and window_size: clusters are never the current length's"
        )
    if num_clusters is None:
        assert max_len is not None
        check_positive(max_len=max_len)
        num_clusters = max(1, round(max_len**0.5 / 2))
    check_positive(num_clusters=num_clusters)
    if window_size is None:
        assert max_len is not None
        window_size = -(-max_len // num_clusters)
    check_positive(window_size=window_size)
    return num_clusters, window_size
