"""Performer, FAVOR+ (Choromanski et al. 2020, arXiv 2009.14794).

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j)
    phi(x) = exp(w x - |x|^2 / 2),   E phi(q) phi(k) = exp(q k / sqrt(K)),   x = q / K^(1/4), w ~ N(0, I)

Cost: T M V per head; state: M (V + 1) per head. `functional/favor.py` has the features and their stabiliser.
The published stabiliser subtracts from the exponents of keys their maximum over all positions and adds 1e-6 to the
features, so a causal output depends on later tokens: `stabiliser="published"` serves bidirectional use alone.
"strict" is the same there; in causal order it takes the maximum so far and adds nothing.
Orthogonal rows come with the sign that makes their law uniform, which the published code leaves out (it is biased).
The matrix is redrawn after every `redraw_every` optimiser steps (None: never), from a seed that is stored with it.
"""

from typing import Literal, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import Capabilities, Mixer, No, Observation, OptionError
from regard.core.shapes import check_positive
from regard.functional.linear.attention import causal_sums, family, kernel_weights, read, summed
from regard.functional.linear.favor import (
    Features,
    favor_attention,
    floored,
    kernel_of,
    key_features,
    lowest,
    query_features,
)
from regard.functional.shared.cache import advance
from regard.functional.shared.implementation import Impl, check_impl
from regard.nn.heads import Heads
from regard.nn.projection import RandomProjection


class State(NamedTuple):
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    c: Float[Tensor, "B H"]  # largest exponent of a key so far; S and z are divided by its exp
    length: Int[Tensor, "B"]


class ContextState(NamedTuple):
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


class Performer(Mixer):
    name = "performer"
    family = "linear"
    paper = "Choromanski et al. 2020, arXiv 2009.14794"
    capabilities = Capabilities(
        causal=True,
        pairwise=No(
            "keys are summed before any query meets them, so single pairs cannot be taken out"
        ),
        global_tokens=True,
        cross=True,
        streaming="exact",
        attention_map=True,
        positions=frozenset({"absolute"}),
        approximates="softmax",
        time="T H M V",
        memory="T H M",
        state="H M V",
    )
    variants = {
        "hyperbolic": {"features": "hyperbolic", "num_features": 11, "per_head": True},
        "relu": {"features": "relu", "num_features": 16, "orthogonal": False},
        "published": {"stabiliser": "published", "num_features": 16},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_features: int = 256,
        features: Features = "positive",
        orthogonal: bool = True,
        per_head: bool = False,
        stabiliser: Literal["strict", "published"] = "strict",
        redraw_every: int | None = 1000,
        impl: Impl = "auto",
    ):
        super().__init__(dim)
        check_positive(num_features=num_features)
        if redraw_every is not None:
            check_positive(redraw_every=redraw_every)
        if features not in ("positive", "hyperbolic", "relu") and not callable(features):
            raise OptionError(
                "performer: features must be 'positive', 'hyperbolic', 'relu' or a function f >= 0 of w x, "
                f"got {features!r}"
            )
        if stabiliser not in ("strict", "published"):
            raise OptionError(
                f"performer: stabiliser must be 'strict' or 'published', got {stabiliser!r}"
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
        self.impl = check_impl(self.name, impl, family(kernel_of(features) is None))
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        self.features = features
        self.redraw_every = redraw_every
        self.projection = RandomProjection(
            num_heads if per_head else 1, num_features, dim // num_heads, orthogonal=orthogonal
        )

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        return self.heads.merge(
            favor_attention(
                q, k, v, self.projection.w, mask=mask, features=self.features, impl=self.impl
            )
        )

    def after_step(self) -> None:
        if self.redraw_every is not None and self.projection.tick() % self.redraw_every == 0:
            self.projection.redraw()

    def _queries(self, x: Float[Tensor, "B T D"], *, causal: bool) -> Float[Tensor, "B H T M"]:
        return query_features(
            self.heads.queries(x), self.projection.w, self.features, causal=causal
        )

    def _initial_state(self, batch_size, max_len, context, valid):
        weight, w = self.heads.value.weight, self.projection.w
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        if context is not None:
            k = self.heads.keys(context)
            phi_k, _, _ = key_features(k, w, self.features, causal=False, valid=valid)
            return ContextState(*summed(phi_k, self.heads.values(context)), length)
        M = w.shape[1] * (2 if self.features == "hyperbolic" else 1)
        shape = (batch_size, self.num_heads, M)
        c = weight.new_full(shape[:2], lowest(weight.dtype))
        return State(
            weight.new_zeros(*shape, self.heads.head_dim), weight.new_zeros(shape), c, length
        )

    def _extend(self, x, state, valid, donate):
        length = advance(state.length, valid, x.shape[1])
        if isinstance(state, ContextState):
            sums, total = read(self._queries(x, causal=False), state.S, state.z)
            return self.heads.merge(sums / floored(total)), state._replace(length=length)
        k, v = self.heads.keys(x), self.heads.values(x)
        phi_k, log_decay, c = key_features(
            k, self.projection.w, self.features, causal=True, valid=valid, before=state.c
        )
        assert c is not None, "causal features come with the maximum after them"
        phi_q = self._queries(x, causal=True)
        sums, total, S, z = causal_sums(
            phi_q, phi_k, v, state.S, state.z, log_decay=log_decay, impl=self.impl, donate=donate
        )
        c = c.to(state.c.dtype)
        return self.heads.merge(sums / floored(total)), State(S, z, c, length)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        w = self.projection.w
        phi_q = query_features(q, w, self.features, causal=mask.causal)
        phi_k, log_decay, _ = key_features(
            k, w, self.features, causal=mask.causal, valid=mask.valid
        )
        weights = kernel_weights(phi_q, phi_k, mask=mask, log_decay=log_decay, denominator=floored)
        return Observation(q, k, v, weights, weights @ v)
