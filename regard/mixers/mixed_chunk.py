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

from typing import Literal

import torch
from torch import Tensor

from regard.core import check_even
from regard.functional.mixed_chunk import LinNorm, Sums, softmax_inside
from regard.functional.mixed_chunk_stream import initial_state
from regard.functional.positions.rotary import rotate
from regard.functional.rows import Impl
from regard.functional.squared_relu import weights
from regard.mixers._base import HeadsMixer
from regard.mixers._chunked import ChunkedMixer, Parts


class MixedChunk(ChunkedMixer, HeadsMixer):
    __doc__ = __doc__
    name = "mixed_chunk"
    family = "linear"
    capabilities = ChunkedMixer.capabilities.but(
        approximates="softmax", time="T C H K + T H K V", state="H K V + C H K", finite_to=10.0
    )
    variants = {
        "chunk": {"chunk_size": 4, "num_kv_heads": 1},
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
        parts: Parts = "both",
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, max_len=max_len, alike=True)
        self._set_chunks(chunk_size, lin_norm, parts)
        check_even(**{"dim / num_heads": self.heads.head_dim})
        self.inside = softmax_inside if local_fn == "softmax" else _relu2
        if local_fn == "relu2":
            self.declare(finite_to=1.0)

    def _sums(self, x, causal, position):
        q, k, v = self.heads.split(x, None, position[:, 0])
        q, k = rotate(torch.cat([q, k], 1), position).chunk(2, 1)
        pair = q / q.shape[-1] ** 0.5, k
        near = None if self.parts == "global" else pair
        far = None if self.parts == "local" else pair
        return Sums(near, far, self.inside, self.shares[causal]), v

    def _merge(self, x, mixed):
        return self.heads.merge(mixed)

    def _start(self, length, max_len):
        K = self.heads.head_dim
        like = self.heads.zeros(len(length), 0)
        return initial_state(like, length, like.shape[1], self.chunk_size, K, K, K)


def _relu2(q, k, v, allowed, ahead) -> Tensor:
    return weights(q, k, allowed) @ v
