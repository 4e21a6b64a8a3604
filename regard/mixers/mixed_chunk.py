"""Mixed chunk attention without the gate: MC-TFM++ (Hua et al. 2022, arXiv 2202.10447, the ablation of FLASH).

    y = concat_h( softmax(q k^T / sqrt(K)) v inside chunks of C tokens  +  a_i q_i / sqrt(K) sum_j k_j v_j^T ) W_out

q and k are turned by rope. `num_kv_heads`: arXiv 2305.13245. The second sum runs over all tokens, or, where causal, over those of the chunks before; a_i
as in `flash` (`lin_norm`). Cost: T C K + T K V per head. The paper does not say how its heads weigh or scale the parts:
here both use the same q and k. `local_fn="relu2"` takes relu(q k / sqrt(K))^2 over the number of visible keys inside
chunks, as `flash` does. `parts`: "local" and "global" are the paper's ablations with one part only.

Args:
    chunk_size: tokens in a chunk
    local_fn: weights inside a chunk
    lin_norm: divisor of the sum over other chunks: its tokens, the chunk's size or max_len
    parts: pairs inside chunks, between chunks, or both
"""

import math
from dataclasses import replace
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import No, Observation, OptionError
from regard.functional.cache import place
from regard.functional.mixed_chunk import LinNorm, Sums, mixed_chunks, shares, softmax_inside, units
from regard.functional.mixed_chunk_stream import extend, initial_state
from regard.functional.positions.rotary import rotate
from regard.functional.rows import Impl, check_impl
from regard.functional.squared_relu import weights
from regard.mixers._capabilities import ALL
from regard.nn.heads import Heads, HeadsMixer


class MixedChunk(HeadsMixer):
    __doc__ = __doc__
    name = "mixed_chunk"
    family = "linear"
    paper = "Hua et al. 2022, arXiv 2202.10447"
    capabilities = replace(
        ALL,
        pairwise=No(
            "keys are summed before any query meets them, so single pairs cannot be taken out"
        ),
        cross=No("its chunks pair the tokens of one sequence"),
        approximates="softmax",
        time="T C H K + T H K V",
        state="H K V + C H K",
    )
    variants = {
        "chunk": {"chunk_size": 4},
        "grouped": {"chunk_size": 4, "num_kv_heads": 1},
        "relu2": {"chunk_size": 5, "local_fn": "relu2", "lin_norm": "chunk"},
        "local": {"chunk_size": 4, "parts": "local"},
        "global": {"chunk_size": 4, "parts": "global"},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        chunk_size: int = 256,
        local_fn: Literal["softmax", "relu2"] = "softmax",
        lin_norm: LinNorm = "count",
        parts: Literal["both", "local", "global"] = "both",
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, max_len=max_len)
        self.impl = check_impl(self.name, impl, "softmax inside")
        self.shares = shares(self.name, lin_norm, chunk_size, max_len)
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads, num_kv_heads=num_kv_heads, repeat=True, alike=True)
        if self.heads.head_dim % 2:
            raise OptionError(
                f"mixed_chunk: dim / num_heads ({self.heads.head_dim}) must be even: rotary positions turn channels in pairs"
            )
        self.chunk_size, self.local_fn, self.parts = chunk_size, local_fn, parts
        if lin_norm == "n":
            self.declare(any_length=No("its sums are divided by max_len (lin_norm='n')"))
        if parts == "local":
            self.declare(global_tokens=No("with parts='local' only tokens of one chunk meet"))
        if parts == "global":
            self.delay = chunk_size

    def _mixed(self, x, context, mask):
        position = torch.arange(x.shape[1], device=x.device)[None]
        q, k, v = self._parts(x, position)
        sums = self._sums(q, k, mask.causal)
        return mixed_chunks(sums, v, chunk_size=self.chunk_size, mask=mask)

    def _parts(
        self, x: Float[Tensor, "B T D"], position: Int[Tensor, "b T"]
    ) -> tuple[Tensor, Tensor, Tensor]:
        """q / sqrt(K) and k, turned by their positions, and v."""
        q, k, v = self.heads.split(x)
        q, k = rotate(torch.cat([q, k], dim=1), position).chunk(2, dim=1)
        return q / math.sqrt(q.shape[-1]), k, v

    def _sums(self, q: Tensor, k: Tensor, causal: bool) -> Sums:
        near = None if self.parts == "global" else (q, k)
        far = None if self.parts == "local" else (q, k)
        inside = softmax_inside(self.impl) if self.local_fn == "softmax" else _relu2
        return Sums(near, far, inside, self.shares[causal])

    def _initial_state(self, batch_size, max_len, context, valid):
        K, like = self.heads.head_dim, self.heads.zeros(batch_size, 0)
        return initial_state(like, batch_size, like.shape[1], self.chunk_size, K, K, K)

    def _extend(self, x, state, valid, donate):
        q, k, v = self._parts(x, place(state.length, valid, x.shape[1]))
        sums = self._sums(q, k, causal=True)
        mixed, state = extend(sums, v, state, valid=valid, donate=donate)
        return self.heads.merge(mixed), state

    def _observe(self, x, context, mask):
        q, k, v = self._parts(x, torch.arange(x.shape[1], device=x.device)[None])
        sums = self._sums(q, k, mask.causal)
        a = mixed_chunks(sums, units(v), chunk_size=self.chunk_size, mask=mask)
        return Observation(q, k, v, a)


def _relu2(q, k, v, allowed, ahead) -> Tensor:
    return weights(q, k, allowed) @ v
