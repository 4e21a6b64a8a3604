"""Routing attention: tokens attend inside clusters that online k-means keeps (Roy et al. 2020, arXiv 2003.05997).

    q^ = LN(q), k^ = LN(k)        no gain, no bias: on the sphere of radius sqrt(K)
    cluster c:  the `window_size` = W queries and the W keys of largest q^ mu_c and k^ mu_c
    y_i = mean over the clusters that have i of   softmax_j(q^_i k^_j / sqrt(K)) v_j,  j among the keys of the cluster

A token of no cluster gets zero. mu moves by moving averages, see `nn.centroids`, in `after_step`.

Cost: T N K + N W^2 K per head. N = `num_clusters` and W are constants, by default sqrt(max_len) / 2 and what covers max_len.
State: the last W keys and values of every cluster.

Unlike the paper: balanced clusters are not the causal form, because later tokens push earlier ones out of them. Causal, a
token belongs to the nearest centroid of q^ + k^ and sees the last W earlier tokens of it, and itself. The paper's form is
`published_causal=True` (then always, for every request, so `causal` is refused). With a context each query goes to its
nearest centroid alone, as its neighbours may be later ones, and sees the W keys nearest to that centroid (causal: the
last W of its keys). `shared_qk=True` makes keys of the queries, as the official causal code does; `scale=1` is its scale.
`attend_raw=True` clusters by q^, k^ and attends with q, k. The commitment loss is a method of its own, for the caller to
add with weight 1e-4 (`regard train --train.commitment 1e-4`). Half of the heads are local, as the paper advises, in `head_groups`. `num_kv_heads`:
arXiv 2305.13245. No rotary positions: clusters are of what tokens hold, wherever they stand, and turned tokens would lie in clusters of places.

Args:
    num_clusters: clusters in each head; None: near the root of max_len
    window_size: tokens in a cluster
    shared_qk: True: keys are made from the queries
    allow_self: True: a token may see itself
    attend_raw: True: queries and keys are normalised for clustering alone
    decay: share of the running means that one optimiser step keeps
    published_causal: True: the published causal form, which leaks later tokens
    seed: seed of the random numbers; None: from torch's generator
"""

from dataclasses import replace

from jaxtyping import Int
from torch import Tensor

from regard.core import (
    OPEN,
    Context,
    Mask,
    No,
    OptionError,
    Options,
    Scalar,
    Seed,
    Share,
    Tokens,
    check_request,
)
from regard.functional.kmeans import Assigned, assign, attend, standardised
from regard.functional.rings import empty, extend
from regard.functional.rows import Impl
from regard.mixers._base import ALL, HeadsMixer
from regard.nn.centroids import Centroids, Counts

SHARED = {"shared_qk": True, "allow_self": False}


class Routing(HeadsMixer):
    __doc__ = __doc__
    name = "routing"
    family = "routed"
    paper = "Roy et al. 2020, arXiv 2003.05997"
    operations = ("sorted",)
    capabilities = ALL.but(
        global_tokens=No("an output is a mean over clusters, and a global token belongs to none"),
        approximates="softmax",
        time="T N H K + N W^2 H K",
        state="N W H K",
    )
    variants = {
        "shared_qk": {"num_clusters": 3, "window_size": 4, **SHARED},
        "grouped": {"num_clusters": 3, "window_size": 4, "num_kv_heads": 1},
        "raw": {"num_clusters": 2, "window_size": 3, "attend_raw": True},
        "published_causal": {
            **{"num_clusters": 3, "window_size": 5, "published_causal": True, "scale": 1.0},
            **SHARED,
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
        decay: Share = 0.999,
        published_causal: bool = False,
        seed: Seed | None = None,
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, max_len=max_len, shared_qk=shared_qk)
        if num_clusters is None or window_size is None:  # sqrt(max_len) / 2, which cover max_len
            if max_len is None:
                raise OptionError(
                    "routing needs max_len, or num_clusters and window_size: clusters are never the current length's"
                )
            num_clusters = num_clusters or max(1, round(max_len**0.5 / 2))
            window_size = window_size or -(-max_len // num_clusters)
        self.num_clusters = num_clusters
        self.window_size = window_size
        self.centroids = Centroids(
            num_heads, num_clusters, self.heads.head_dim, decay=decay, seed=seed
        )
        self.shared_qk = shared_qk
        self.attend_raw = attend_raw
        self.published = published_causal
        self._rules: Options = {"scale": scale, "exclude_self": not allow_self}
        if published_causal:
            why = No("later tokens push earlier ones out of the clusters")
            self.declare(causal=why, streaming=why, cross=No("its clusters are of one axis"))

    def mix(self, x, context, mask):
        counted = self.training and not self.heads.apart
        counts = self.centroids.counters(self.name) if counted else None
        given = *self._assigned(x, context, mask, counts), self.window_size
        mask = replace(mask, causal=mask.causal or self.published)
        y = attend(*given, mask=mask, impl=self.impl, **self._rules)
        return self.heads.merge(y if counts is None else self.centroids.count(y, counts))

    def commitment_loss(self, x: Tokens, *, context: Context = None, mask: Mask = OPEN) -> Scalar:
        """mean |q^ - mu|^2 + mean |k^ - mu|^2 to the nearest centroids, which get no gradient; the official weight is 1e-4."""
        check_request(self, x, context, mask)
        of = self.centroids.distance
        source = x if context is None else context
        loss = of(self.heads.queries, x, mask.valid if context is None else None)
        return loss if self.shared_qk else loss + of(self.heads.keys, source, mask.valid)

    def _after_step(self) -> None:
        self.centroids.update()

    def _assigned(
        self, x, context, mask, counts: Counts | None = None, after: Int[Tensor, "B"] | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Assigned]:
        """q, k and v of the attention, and the clusters of their tokens, which autocast does not move."""
        cross = context is not None

        def split(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
            return self.heads.split(x, None if context is None else context.type_as(x), after)

        def decide(split: tuple[Tensor, Tensor, Tensor]) -> Assigned:
            (q, k), mu = self._standardised(*split[:2]), self.centroids.value
            if counts is not None:
                counts.add(q, k, mu, mask.valid, cross=cross)
            return assign(q, k, mu, self.window_size, mask, cross=cross)

        q, k, v = given = split(x)
        assigned = self.heads.decided(decide, given, split, x)
        return *((q, k) if self.attend_raw else self._standardised(q, k)), v, assigned

    def _standardised(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        unit = standardised(q)
        return unit, unit if self.shared_qk else standardised(k)

    def _keep(self, context, valid):
        _, *kept, assigned = self._assigned(context[:, :1], context, Mask(valid=valid))
        return *kept, assigned["key_members"]

    def _read(self, x, kept, at):
        q, _, _, assigned = self._assigned(x, x[:, :1], OPEN)
        k, v, assigned["key_members"] = kept
        return attend(q, k, v, assigned, self.window_size, impl=self.impl, **self._rules)

    def _start(self, length, max_len):
        return empty(self.heads.zeros(len(length), 0), 1, self.num_clusters, self.window_size)

    def _step(self, x, state, valid, donate):
        mask = Mask(causal=True, valid=valid, compact=True)
        q, k, v, assigned = self._assigned(x, None, mask, after=state.length)
        group = assigned["clusters"][:, :, None]
        return extend(q, k, v, group, state, valid=valid, donate=donate, **self._rules)

    def _plan(self, x, context, mask):
        return self._assigned(x, context, mask)[3]
