"""FLASH: mixed chunk attention behind a gate (Hua et al. 2022, arXiv 2202.10447); linear cost, constant state.

    u, v, z as in `gau`; four views of z, turned by rope: q, k inside chunks of C tokens and q', k' between them
    y_i = ( u_i * [ sum_{j in chunk of i} relu(q_i k_j / sqrt(K) + b_ij)^2 / n_i v_j  +  a_i q'_i sum_j k'_j v_j^T ] ) W_out

The second sum runs over all tokens, or, where causal, over those of the chunks before (the own chunk is left out).
Cost: T C (K + F) + T K F. n_i: number of keys of the chunk that i sees; the paper's relu(q k / C + b)^2 is
`scale="paper"`. a_i, by `lin_norm`: one over the number of summed tokens ("count"), which no length spoils; 1 / C when
causal ("chunk", a public code's, whose term grows with the length), otherwise as "count"; 1 / max_len ("n").
The relative bias is as in `gau`, with C in the place of max_len. Chunks start at the first token. `parts`: "local" and
"global" are the paper's ablations, the first or the second sum alone; outside decoding they cost as much time as both. The
ablation without the gate is `mixed_chunk`.

Args:
    hidden_dim: channels of the hidden layer; None: a multiple of dim
    key_dim: channels of queries and keys
    scale: name of the rule that scales the weights
    chunk_size: tokens in a chunk
    lin_norm: divisor of the sum over other chunks: its tokens, the chunk's size or max_len
    relative_bias: form of the bias by distance; None: no bias
    parts: pairs inside chunks, between chunks, or both
    bias: True: linear maps have a bias
"""

from typing import Literal

from torch import Tensor

from regard.functional.mixed_chunk import LinNorm, Sums
from regard.functional.mixed_chunk_stream import initial_state
from regard.functional.rows import Impl
from regard.functional.squared_relu import weights
from regard.mixers._chunked import ChunkedMixer, Parts
from regard.nn.gated import VIEW_STD, GatedUnit, RelativeBias, RelativeForm


class Flash(ChunkedMixer):
    __doc__ = __doc__
    name = "flash"
    family = "squared-relu"
    num_heads = 1
    capabilities = ChunkedMixer.capabilities.but(
        includes_ffn=True,
        approximates="gau",
        time="T C K + T C F + T K F",
        memory="T F + C^2",
        state="K F + C F + C K",
        finite_to=1.0,
    )
    variants = {
        "chunk": {"chunk_size": 4, "key_dim": 6},
        "paper": {
            "chunk_size": 4,
            "key_dim": 6,
            "scale": "paper",
            "relative_bias": "toeplitz",
            "lin_norm": "chunk",
        },
        "max_len": {"chunk_size": 5, "key_dim": 8, "lin_norm": "n", "relative_bias": None},
        "local": {"chunk_size": 4, "key_dim": 6, "parts": "local"},
        "global": {"chunk_size": 4, "key_dim": 6, "parts": "global"},
    }

    def __init__(
        self,
        dim: int,
        *,
        max_len: int | None = None,
        hidden_dim: int | None = None,
        key_dim: int = 128,
        chunk_size: int = 256,
        scale: Literal["visible", "paper"] = "visible",
        lin_norm: LinNorm = "count",
        relative_bias: RelativeForm = "rotary",
        parts: Parts = "both",
        bias: bool = True,
        impl: Impl = "auto",
    ):
        super().__init__(dim, impl, max_len=max_len)
        self._set_chunks(chunk_size, lin_norm, parts)
        self.unit = GatedUnit(
            dim, hidden_dim or 2 * dim, key_dim, 4, std=VIEW_STD[scale], bias=bias
        )
        self.relative = RelativeBias(relative_bias, key_dim, chunk_size)
        self.score_scale = 1 / chunk_size if scale == "paper" else key_dim**-0.5
        self.divisor = 1.0 if scale == "paper" else None

    def _sums(self, x, causal, position):
        q, k, far_q, far_k = self.relative.turned(self.unit.views(x), position, self.score_scale)
        near = None if self.parts == "global" else (q, k)
        far = None if self.parts == "local" else (far_q, far_k)
        return Sums(near, far, self._inside, self.shares[causal]), self.unit.values(x)

    def _inside(self, q, k, v, allowed, ahead) -> Tensor:
        return weights(q, k, allowed, bias=self.relative.at(ahead), divisor=self.divisor) @ v

    def _merge(self, x, mixed):
        return self.unit.merge(x, mixed)

    def _start(self, length, max_len):
        widths = self.relative.width, self.unit.key_dim, self.unit.hidden_dim
        return initial_state(self.unit.out.weight, length, 1, self.chunk_size, *widths)
