"""Random Feature Attention (Peng et al. 2021, arXiv 2103.02143).

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j phi(k_j) v_j^T,   z_i = sum_j phi(k_j),   q, k of unit norm
    phi(x) = [sin(w x), cos(w x)] / sqrt(M)  (fourier)   or   relu(w x) / sqrt(M)  (arc_cosine),   w = sigma w', w' ~ N(0, I)
    gate:  S_t = g_t S_{t-1} + (1 - g_t) phi(k_t) v_t^T,  z likewise,  g_t = sigmoid(w_g x_t + b_g)

Cost: T M V per head, also with the gate, which is computed in parallel chunks; state: M (V + 1) per head.
sigma [H K] is learned and starts at 1; it multiplies, so it is an inverse bandwidth, and stretches channels one by one: no rotary
positions, since turned channels would then depend on places themselves and not on their distance. `num_kv_heads`: arXiv 2305.13245. b_g starts at `gate_bias`.
The paper does not say how a denominator of either sign is kept from zero: here sgn(n) max(|n|, 1e-6).
The paper draws a matrix for each head and step from a stored pool: `pool_size`; evaluation uses the first H of it. By
default each head keeps one.
Segments with memory (the paper's stateful training): `extend` with the state of the segment before, detached by the
caller, `replace(state, S=state.S.detach(), z=state.z.detach())` of dataclasses.

Args:
    num_features: random features in each head
    features: kind of random features, or a function that makes them
    orthogonal: True: random directions of one block are orthogonal
    gate: gate of the sums
    gate_bias: bias of the gate at the start, before its sigmoid
    pool_size: projection matrices to draw from; None: one for each head
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import No, OptionError, Tokens
from regard.functional.features import RandomKernel, unit_features, unit_keys
from regard.functional.linear import random_feature_attention, signed
from regard.functional.rows import Impl
from regard.mixers._recurrent import RecurrentMixer
from regard.nn.projection import RandomProjection
from regard.nn.starts import projection, unset


class RFA(RecurrentMixer):
    __doc__ = __doc__
    name = "rfa"
    paper = "Peng et al. 2021, arXiv 2103.02143"
    capabilities = RecurrentMixer.capabilities.but(
        approximates="softmax", memory="T H M", exchange="sums"
    )
    operations = ("causal sums",)
    denominator = staticmethod(signed)
    drawn: Tensor | None
    variants = {
        "arc_cosine": {"features": "arc_cosine", "num_features": 24},
        "gate": {"gate": True, "gate_bias": 1.0},
        "arc_cosine_gate": {"features": "arc_cosine", "num_features": 24, "gate": True},
        "grouped": {"num_features": 16, "num_kv_heads": 1},
        "pool": {"pool_size": 5, "num_features": 32, "orthogonal": True},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_features: int = 64,
        features: RandomKernel = "fourier",
        orthogonal: bool = False,
        gate: bool = False,
        gate_bias: float = 0.0,
        pool_size: int | None = None,
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl)
        if pool_size is not None and pool_size < num_heads:
            raise OptionError(
                f"rfa: pool_size ({pool_size}) must be at least num_heads ({num_heads}): "
                "heads draw without replacement"
            )
        if gate_bias and not gate:
            raise OptionError(f"rfa: gate_bias ({gate_bias}) belongs to the gate: pass gate=True")
        if gate:
            direction = No("its gate forgets in the order of the tokens")
            self.declare(bidirectional=direction, cross=direction, exchange=direction)
            self.beside_heads = "its gate"
        self.features = features
        self.sigma = unset(num_heads, self.heads.head_dim)
        self.projection = RandomProjection(
            pool_size or num_heads, num_features, self.heads.head_dim, orthogonal=orthogonal
        )
        drawn = None if pool_size is None else torch.empty(num_heads, dtype=torch.long)
        self.register_buffer("drawn", drawn)
        self.gate = projection(dim, num_heads, bias=gate_bias) if gate else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.ones_(self.sigma)
        if self.drawn is not None:
            self.drawn.copy_(torch.arange(len(self.drawn)))

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        given = q, k, v, self._w(), self._gate(x)
        y = random_feature_attention(*given, mask=mask, features=self.features, impl=self.impl)
        return self.heads.merge(y)

    @property
    def changes_after_step(self) -> bool:
        return self.drawn is not None

    def _after_step(self) -> None:
        if self.drawn is not None:
            self.projection.tick()
            order = torch.randperm(
                self.projection.w.shape[0], generator=self.projection.generator(), device="cpu"
            )
            self.drawn.copy_(order[: self.num_heads])

    def _w(self) -> Float[Tensor, "H M K"]:
        w = self.projection.w
        if self.drawn is not None:
            w = w[self.drawn] if self.training else w[: self.num_heads]
        return self.sigma[:, None] * w

    def _gate(self, x: Tokens) -> Float[Tensor, "B H T"] | None:
        return None if self.gate is None else self.gate(x).mT

    def _queries(self, q, mask):
        return unit_features(q, self._w(), self.features)

    def _keys(self, k, source, mask, state):
        return unit_keys(k, self._w(), self.features, self._gate(source), mask.valid)
