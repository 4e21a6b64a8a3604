"""Performer, FAVOR+ (Choromanski et al. 2020, arXiv 2009.14794).

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j)
    phi(x) = exp(w x - |x|^2 / 2),   E phi(q) phi(k) = exp(q k / sqrt(K)),   x = q / K^(1/4), w ~ N(0, I)

Cost: T M V per head; state: M (V + 1) per head. `functional/features.py` has the features and their stabiliser.
`stabiliser` c, phi(x) = exp(w x - |x|^2 / 2 - c) + 1e-6. "strict", the default: the maximum of w x - |x|^2 / 2, over features
for a query, over features and positions for keys; in causal order over the positions so far, and without the 1e-6, which
keeps c from cancelling, so that otherwise c has a gradient.
"published" is the map of the published code: the maximum of w x, over all keys of an example and head. Through the 1e-6 a
causal output would depend on later tokens, so it serves bidirectional use alone. Its error against softmax is smaller (2.0
for 3.0 at default weights, docs/log.md), but by the 1e-6, which pulls weights towards the mean of the values, itself nearer
(0.9). So the default is the paper's estimator, which also has a causal form.
Orthogonal rows come with the sign that makes their law uniform, which the published code leaves out (it is biased).
`num_kv_heads`: arXiv 2305.13245. `position="rotary"` (arXiv 2104.09864) turns q and k before the features, which then estimate
softmax of the turned ones.
The matrix is redrawn after every `redraw_every` optimiser steps (None: never), from a seed that is stored with it.

Args:
    num_features: random features in each head
    features: kind of random features, or a function that makes them
    orthogonal: True: random directions of one block are orthogonal
    per_head: True: every head draws its own features
    stabiliser: what is subtracted in the exponent: a causal maximum, or the published one
    redraw_every: optimiser steps between two draws of the features; None: never
"""

from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from regard.core import No, OptionError, Streamed, as_state
from regard.functional.features import (
    Favor,
    Stabiliser,
    favor_keys,
    favor_queries,
    kernel_of,
    lowest,
)
from regard.functional.linear import favor_attention, floored
from regard.functional.rows import Impl, ranged, unrounded
from regard.mixers._base import Options
from regard.mixers._recurrent import RecurrentMixer
from regard.nn.projection import RandomProjection


@as_state
class State(Streamed):
    sums = ("S", "z", "c")
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    c: Float[Tensor, "B H"]  # largest exponent of a key so far; S and z are divided by its exp
    length: Int[Tensor, "B"]


class Performer(RecurrentMixer):
    __doc__ = __doc__
    name = "performer"
    paper = "Choromanski et al. 2020, arXiv 2009.14794"
    capabilities = RecurrentMixer.capabilities.but(
        approximates="softmax", memory="T H M", positions=frozenset({"absolute", "rotary"})
    )
    operations = ("favor", "causal sums")
    denominator = staticmethod(floored)
    variants = {
        "hyperbolic": {"features": "hyperbolic", "num_features": 11, "per_head": True},
        "relu": {"features": "relu", "num_features": 16, "orthogonal": False},
        "published": {"stabiliser": "published", "num_features": 16},
        "grouped": {"num_kv_heads": 1, "num_features": 16, "position": "rotary"},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_features: int = 256,
        features: Favor = "positive",
        orthogonal: bool = True,
        per_head: bool = False,
        stabiliser: Stabiliser = "strict",
        redraw_every: int | None = 1000,
        num_kv_heads: int | None = None,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(
            dim, num_heads, num_kv_heads, impl, position, position_options, alike=not per_head
        )
        if stabiliser == "published":
            if kernel_of(features) is not None:
                raise OptionError(
                    f"performer: features={features!r} has no stabiliser; leave stabiliser out"
                )
            leak = No("its stabiliser is a maximum over all positions")
            self.declare(causal=leak, streaming=leak)
        if kernel_of(features) is not None:
            self.declare(approximates=None)
        self._how: dict[str, Any] = {"features": features, "stabiliser": stabiliser}
        self.redraw_every = redraw_every
        self.projection = RandomProjection(
            num_heads if per_head else 1, num_features, dim // num_heads, orthogonal=orthogonal
        )

    def mix(self, x, context, mask):
        given = *self.heads.split(x, context), self.projection.w
        return self.heads.merge(favor_attention(*given, mask=mask, impl=self.impl, **self._how))

    @property
    def changes_after_step(self) -> bool:
        return self.redraw_every is not None

    def _after_step(self) -> None:
        if self.redraw_every is not None and self.projection.tick() % self.redraw_every == 0:
            self.projection.redraw()

    def _queries(self, q, mask):
        with unrounded(q):
            (q,) = ranged(q)
            return favor_queries(q, self.projection.w.type_as(q), causal=mask.causal, **self._how)

    def _keys(self, k, source, mask, state):
        how = self._how | {"causal": mask.causal, "valid": mask.valid}
        with unrounded(k):
            (k,) = ranged(k)
            before = None if state is None else state.c
            return favor_keys(k, self.projection.w.type_as(k), before=before, **how)

    def _start(self, length, max_len):
        empty = super()._start(length, max_len)
        c = empty.z.new_full(empty.z.shape[:2], lowest(empty.z.dtype))
        return State(empty.S, empty.z, c, length)
