"""Gated attention unit, also called FLASH-Quad (Hua et al. 2022, arXiv 2202.10447): attention and feed-forward in one.

    u = silu(x W_u),  v = silu(x W_v),  z = silu(x W_z)
    q = rope(z gamma_q + beta_q),  k = rope(z gamma_k + beta_k)                    one head of width `key_dim`
    A_ij = relu( q_i k_j / sqrt(K) + b_ij )^2 / n_i,   y = (u * A v) W_out         n_i: number of keys that i sees

Cost: T^2 (K + F); no [T T] is stored. Two such layers hold the parameters of one attention and one feed-forward layer.
Weights `scale`: as above ("visible"), which neither padding, truncation nor streaming changes and no length spoils;
the paper's relu(q k / max_len + b)^2 ("paper"); relu(q k / sqrt(K) + b)^2 / max_len ("ns"). gamma starts
N(0, 0.02^2) with "paper", as there, and N(0, 1) otherwise, which learns far sooner.
Relative bias: rope(a)_i rope(b)_j with learned a, b ("rotary"), the paper's form for long sequences, for any length;
one learned number per distance, its form up to max_len = 512 ("toeplitz"); or none.
The paper has no context: here u and q come from x, v and k from the context; queries count from 0, or, where causal,
the last one is aligned with the last key.
"""

import math
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Mask, Mixer, No, Observation, OptionError
from regard.core.states import Streamed, as_state
from regard.functional.cache import advance, columns, place, put
from regard.functional.rows import Impl, check_impl
from regard.functional.squared_relu import squared_relu_attention, squared_relu_weights
from regard.mixers._capabilities import ALL
from regard.nn.gated import VIEW_STD, GatedUnit, RelativeBias, RelativeForm


@as_state
class State(Streamed):
    k: Float[Tensor, "B 1 C K"]  # with the features of the rotary bias
    v: Float[Tensor, "B 1 C F"]
    length: Int[Tensor, "B"]


@as_state
class ContextState(Streamed):
    k: Float[Tensor, "B 1 S K"]
    v: Float[Tensor, "B 1 S F"]
    valid: Bool[Tensor, "B S"]
    length: Int[Tensor, "B"]


class GAU(Mixer):
    __doc__ = __doc__
    name = "gau"
    family = "squared-relu"
    paper = "Hua et al. 2022, arXiv 2202.10447"
    num_heads = 1
    capabilities = replace(
        ALL,
        includes_ffn=True,
        time="T^2 K + T^2 F",
        memory="T F",
        state="T F + T K",
    )
    variants = {
        "paper": {"scale": "paper", "relative_bias": "toeplitz", "key_dim": 8},
        "ns": {"scale": "ns", "relative_bias": None, "hidden_dim": 20, "key_dim": 6},
    }

    def __init__(
        self,
        dim: int,
        *,
        max_len: int | None = None,
        hidden_dim: int | None = None,
        key_dim: int = 128,
        scale: Literal["visible", "paper", "ns"] = "visible",
        relative_bias: RelativeForm = "rotary",
        bias: bool = True,
        impl: Impl = "auto",
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl)
        given = {
            f"scale={scale!r}": scale != "visible",
            "relative_bias='toeplitz'": relative_bias == "toeplitz",
        }
        bound = " and ".join(option for option, needs in given.items() if needs)
        if bound:
            if max_len is None:
                raise OptionError(f"gau: {bound} needs max_len: pass max_len=")
            self.declare(any_length=No(f"its weights depend on max_len by {bound}"))
        self.unit = GatedUnit(
            dim,
            2 * dim if hidden_dim is None else hidden_dim,
            key_dim,
            2,
            std=VIEW_STD[scale],
            bias=bias,
        )
        self.relative = RelativeBias(relative_bias, key_dim, max_len)
        self.score_scale = 1 / (max_len or 1) if scale == "paper" else 1 / math.sqrt(key_dim)
        self.divisor = {"visible": None, "paper": 1.0, "ns": float(max_len or 1)}[scale]

    def mix(self, x, context, mask):
        q, k, v, how = self._parts(x, context, mask)
        mixed = squared_relu_attention(q, k, v, mask=mask, impl=self.impl, **how)
        return self.unit.merge(x, mixed)

    def _parts(
        self, x: Tensor, context: Tensor | None, mask: Mask
    ) -> tuple[Tensor, Tensor, Tensor, dict]:
        T, device = x.shape[1], x.device
        query = key = torch.arange(T, device=device)[None]
        if context is None:
            q, k = self.relative.turned(self.unit.views(x), query, self.score_scale)
            return q, k, self.unit.values(x), self._how(query, key)
        key = torch.arange(context.shape[1], device=device)[None]
        query = mask.last_key(T, context.shape[1], device) if mask.causal else query
        q, k = self._queries(x, query), self._keys(context, key)
        return q, k, self.unit.values(context), self._how(query, key)

    def _queries(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"]
    ) -> Float[Tensor, "B 1 T K"]:
        return self.relative.turned(self.unit.views(x)[:, :1], position, self.score_scale, (0,))[0]

    def _keys(
        self, x: Float[Tensor, "B S D"], position: Int[Tensor, "b S"]
    ) -> Float[Tensor, "B 1 S K"]:
        return self.relative.turned(self.unit.views(x)[:, 1:], position, 1.0, (1,))[0]

    def _how(self, query: Int[Tensor, "#b T"], key: Int[Tensor, "#b S"]) -> dict:
        """The divisor, and the bias that is not in the channels."""
        if self.relative.form != "toeplitz":
            return {"divisor": self.divisor}

        def bias(rows: slice) -> Tensor:
            found = self.relative.at(key[:, None, None] - query[:, None, rows, None])
            assert found is not None
            return found

        return {"divisor": self.divisor, "bias": bias}

    def _initial_state(self, batch_size, max_len, context, valid):
        weight = self.unit.out.weight
        length = torch.zeros(batch_size, dtype=torch.long, device=weight.device)
        if context is not None:
            valid = (
                context.new_ones(context.shape[:2], dtype=torch.bool) if valid is None else valid
            )
            position = torch.arange(context.shape[1], device=context.device)[None]
            return ContextState(
                self._keys(context, position), self.unit.values(context), valid, length
            )
        k = weight.new_zeros(batch_size, 1, max_len or 0, self.relative.width)
        v = weight.new_zeros(batch_size, 1, max_len or 0, self.unit.hidden_dim)
        return State(k, v, length)

    def _extend(self, x, state, valid, donate):
        if isinstance(state, ContextState):
            new = place(state.length, valid, x.shape[1])
            key = torch.arange(state.k.shape[2], device=x.device)[None]
            how = {"mask": Mask(valid=state.valid), "impl": self.impl, **self._how(new, key)}
            mixed = squared_relu_attention(self._queries(x, new), state.k, state.v, **how)
            length = advance(state.length, valid, x.shape[1])
            y = self.unit.merge(x, mixed) * state.valid.any(1)[:, None, None]
            return y, replace(state, length=length)
        at = columns(state, valid, x.shape[1], state.k, donate)
        q, new_k = self.relative.turned(self.unit.views(x), at.query, self.score_scale)
        k, v = put(state.k, new_k, at, donate), put(state.v, self.unit.values(x), at, donate)
        how = {"mask": at.mask, "impl": self.impl, **self._how(at.query, at.key)}
        mixed = squared_relu_attention(q, k[:, :, : at.seen], v[:, :, : at.seen], **how)
        return self.unit.merge(x, mixed), State(k, v, at.length)

    def _observe(self, x, context, mask):
        q, k, v, how = self._parts(x, context, mask)
        a = squared_relu_weights(q, k, mask=mask, **how)
        return Observation(q, k, v, a, a @ v)
