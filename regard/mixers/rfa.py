"""Random Feature Attention (Peng et al. 2021, arXiv 2103.02143).

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j),   q, k of unit norm
    phi(x) = [sin(w x), cos(w x)] / sqrt(M)  (fourier)   or   relu(w x) / sqrt(M)  (arc_cosine),   w = sigma w', w' ~ N(0, I)
    gate:  S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t^T,  z likewise,  g_t = sigmoid(w_g x_t + b_g)

Cost: T M V per head, also with the gate, which is computed in parallel chunks; state: M (V + 1) per head.
sigma [H K] is learned and starts at 1; it multiplies, so it is an inverse bandwidth. b_g starts at `gate_bias`.
The paper does not say how a denominator of either sign is kept from zero: here sgn(n) max(|n|, 1e-6).
The paper draws a matrix for each head and step from a stored pool: `pool_size`; evaluation uses the first H of it. By
default each head keeps one.
Segments with memory (the paper's stateful training): `extend` with the state of the segment before, detached by the
caller, `state._replace(S=state.S.detach(), z=state.z.detach())`.
"""

from typing import NamedTuple

import torch
from einops import rearrange
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import Capabilities, Mixer, No, Observation, OptionError
from regard.core.shapes import check_positive
from regard.functional.linear.attention import causal_sums, family, kernel_weights, read, summed
from regard.functional.linear.rfa import (
    Kernel,
    gated,
    random_feature_attention,
    signed,
    unit_features,
)
from regard.functional.shared.cache import advance
from regard.functional.shared.implementation import Impl, check_impl
from regard.nn.heads import Heads
from regard.nn.projection import RandomProjection


class State(NamedTuple):
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


class ContextState(NamedTuple):
    S: Float[Tensor, "B H M V"]
    z: Float[Tensor, "B H M"]
    length: Int[Tensor, "B"]


class RFA(Mixer):
    name = "rfa"
    family = "linear"
    paper = "Peng et al. 2021, arXiv 2103.02143"
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
    drawn: Tensor | None
    variants = {
        "arc_cosine": {"features": "arc_cosine", "num_features": 24},
        "gate": {"gate": True, "gate_bias": 1.0},
        "arc_cosine_gate": {"features": "arc_cosine", "num_features": 24, "gate": True},
        "pool": {"pool_size": 5, "num_features": 32, "orthogonal": True},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_features: int = 64,
        features: Kernel = "fourier",
        orthogonal: bool = False,
        gate: bool = False,
        gate_bias: float = 0.0,
        pool_size: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim)
        self.impl = check_impl(self.name, impl, family(gate))
        check_positive(num_features=num_features)
        if features not in ("fourier", "arc_cosine"):
            raise OptionError(f"rfa: features must be 'fourier' or 'arc_cosine', got {features!r}")
        if pool_size is not None and pool_size < num_heads:
            raise OptionError(
                f"rfa: pool_size ({pool_size}) must be at least num_heads ({num_heads}): "
                "heads draw without replacement"
            )
        if gate_bias and not gate:
            raise OptionError(f"rfa: gate_bias ({gate_bias}) belongs to the gate: pass gate=True")
        if gate:
            direction = No("its gate forgets in the order of the tokens")
            self.declare(bidirectional=direction, cross=direction)
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        self.features = features
        self.sigma = nn.Parameter(torch.ones(num_heads, self.heads.head_dim))
        self.projection = RandomProjection(
            pool_size or num_heads, num_features, self.heads.head_dim, orthogonal=orthogonal
        )
        self.register_buffer("drawn", None if pool_size is None else torch.arange(num_heads))
        self.gate = nn.Linear(dim, num_heads) if gate else None
        if self.gate is not None:
            nn.init.xavier_uniform_(self.gate.weight)
            nn.init.constant_(self.gate.bias, gate_bias)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        mixed = random_feature_attention(
            q,
            k,
            v,
            self._w(),
            mask=mask,
            features=self.features,
            gate=self._gate(x),
            impl=self.impl,
        )
        return self.heads.merge(mixed)

    def after_step(self) -> None:
        if self.drawn is not None:
            self.projection.tick()
            order = torch.randperm(
                self.projection.w.shape[0], generator=self.projection.generator(), device="cpu"
            )
            self.drawn.copy_(order[: self.num_heads])

    def _w(self) -> Float[Tensor, "H M K"]:
        return self.sigma[:, None] * self._drawn()

    def _drawn(self) -> Float[Tensor, "H M K"]:
        w = self.projection.w
        if self.drawn is None:
            return w
        return w[self.drawn] if self.training else w[: self.num_heads]

    def _gate(self, x: Float[Tensor, "B T D"]) -> Float[Tensor, "B H T"] | None:
        return None if self.gate is None else rearrange(self.gate(x), "b t h -> b h t")

    def _phi(self, x: Float[Tensor, "B H T K"]) -> Float[Tensor, "B H T M"]:
        return unit_features(x, self._drawn(), self.features, self.sigma)

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.heads.value.weight
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        if context is not None:
            phi_k = self._phi(self.heads.keys(context))
            if valid is not None:
                phi_k = phi_k * valid[:, None, :, None]
            return ContextState(*summed(phi_k, self.heads.values(context)), length)
        M = self.projection.w.shape[1] * (2 if self.features == "fourier" else 1)
        shape = (batch_size, self.num_heads, M)
        return State(weight.new_zeros(*shape, self.heads.head_dim), weight.new_zeros(shape), length)

    def _extend(self, x, state, valid, donate):
        length = advance(state.length, valid, x.shape[1])
        if isinstance(state, ContextState):
            sums, total = read(self._phi(self.heads.queries(x)), state.S, state.z)
            return self.heads.merge(sums / signed(total)), state._replace(length=length)
        q, k, v = self.heads.split(x)
        phi_q, phi_k = self._phi(torch.cat([q, k], dim=2)).chunk(2, dim=2)
        phi_k, log_decay = gated(phi_k, self._gate(x))
        if valid is not None:  # an absent token adds nothing, and nothing is forgotten for it
            phi_k = phi_k * valid[:, None, :, None]
            log_decay = None if log_decay is None else log_decay * valid[:, None, :]
        sums, total, S, z = causal_sums(
            phi_q,
            phi_k,
            v,
            state.S,
            state.z,
            log_decay=log_decay,
            impl=self.impl,
            donate=donate,
        )
        return self.heads.merge(sums / signed(total)), State(S, z, length)

    def _observe(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        phi_k, log_decay = gated(self._phi(k), self._gate(x))
        weights = kernel_weights(
            self._phi(q), phi_k, mask=mask, log_decay=log_decay, denominator=signed
        )
        return Observation(q, k, v, weights, weights @ v)
