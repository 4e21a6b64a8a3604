"""gMLP, and aMLP with `attention_dim` (Liu et al. 2021, arXiv 2105.08050): a feed-forward layer gated across positions.

    [z_1, z_2] = gelu(x U),   y = (z_1 * (W LN(z_2) + b + tiny)) V          W [T T] signed, b [T], one for all channels
    tiny = softmax(q k^T / sqrt(K)) v W_o,   q, k, v = x W_qkv, one head of width K = `attention_dim` (the paper's 64)

`toeplitz`: W_ij is one number per distance j - i, as in the paper's models of language, for 2 max_len - 1 parameters.
W starts near 0 and b at 1, so that a fresh layer is a plain feed-forward layer; causal is W below its diagonal.
Cost: T^2 F / 2, F = `hidden_dim`; max_len^2 parameters. The state holds LN(z_2) of all past tokens. W_o has no bias
beside b. Without attention the map shows W, as far as it is used; its entries have signs.

Args:
    hidden_dim: channels of the hidden layer; None: a multiple of dim
    attention_dim: channels of the small attention head beside the gate; None: no such head
    toeplitz: True: one number for each distance in the place of a full matrix
"""

import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import Mixer, No, Observation, check_divisible
from regard.functional.rows import Impl, longer, upto
from regard.functional.softmax import softmax_attention
from regard.functional.spatial import spatial_mixing
from regard.mixers._base import ALL
from regard.mixers._cached import CachedMixer
from regard.nn.starts import unset

NEAR_ZERO = 1e-3


class GMLP(CachedMixer):
    __doc__ = __doc__
    name = "gmlp"
    family = "score-free"
    paper = "Liu et al. 2021, arXiv 2105.08050"
    num_heads = 1
    capabilities = ALL.but(
        cross=No("its gate has one weight for each pair of positions of one sequence"),
        any_length=No("its gate has weights for max_len positions"),
        includes_ffn=True,
        time="T^2 F",
        memory="T F",
        state="T F",
    )
    variants = {
        "tiny_attention": {"attention_dim": 6},
        "toeplitz": {"toeplitz": True, "hidden_dim": 10},
    }

    def __init__(
        self,
        dim: int,
        *,
        max_len: int,
        hidden_dim: int | None = None,
        attention_dim: int | None = None,
        toeplitz: bool = False,
        impl: Impl = "auto",
    ):
        super().__init__(dim, impl, max_len=max_len)
        hidden_dim = hidden_dim or 4 * dim
        check_divisible(hidden_dim=hidden_dim, halves=2)
        self.widen = nn.Linear(dim, hidden_dim)
        self.norm = nn.LayerNorm(hidden_dim // 2)
        self.toeplitz = toeplitz
        shape = (2 * max_len - 1,) if toeplitz else (max_len, max_len)
        if toeplitz:
            self.declare(memory="T^2 + T F")
        self.weight = unset(*shape)
        self.bias = unset(max_len)
        self.narrow = nn.Linear(hidden_dim // 2, dim)
        self.reset_parameters()
        self.qkv = self.tiny_out = None
        if attention_dim is not None:
            self.qkv = nn.Linear(dim, 3 * attention_dim, bias=False)
            self.tiny_out = nn.Linear(attention_dim, hidden_dim // 2, bias=False)
            self.declare(
                attention_map=No("its gate and its tiny attention weigh tokens separately"),
                finite_to=10.0,
            )

    def reset_parameters(self) -> None:
        bound = NEAR_ZERO / len(self.bias)
        nn.init.uniform_(self.weight, -bound, bound)
        nn.init.ones_(self.bias)

    def _first(self, T: int) -> Float[Tensor, "T T"]:
        """W between the first T places."""
        if not self.toeplitz:
            return longer(longer(self.weight, T, 0), T, 1)[:T, :T]
        place = upto(T, self.weight)
        return self._between(place, place)

    def _between(
        self, query: Int[Tensor, "*b T"], key: Int[Tensor, "*b S"]
    ) -> Float[Tensor, "*b T S"]:
        """W between the tokens at these places."""
        query, key = query[..., :, None], key[..., None, :]
        if self.toeplitz:
            return self.weight[key - query + self.weight.shape[0] // 2]
        return self.weight[query, key]

    def _split(self, x, context, at=None):
        """Parts of x U: z_1, beside the query of the tiny attention, its key and value side by side, and LN(z_2)."""
        h1, h2 = self.widen(x).chunk(2, -1)
        z1, z2 = F.gelu(h1), self.norm(F.gelu(h2))[:, None]  # apart: no further tensor of [B T F]
        if self.qkv is None:
            return (z1, None), z2[..., :0], z2
        qkv = self.qkv(x)[:, None]
        A = self.qkv.out_features // 3
        return (z1, qkv[..., :A]), qkv[..., A:], z2

    def _attend(self, q, k, v, mask, query=None, key=None):
        (z1, q), T = q, v.shape[2]
        if query is None:
            weight = self._first(T)[None]
            bias = longer(self.bias, T, 0)[None, :T]
        else:
            weight = self._between(query, key.clamp_max(len(self.bias) - 1))
            bias = self.bias[query]
        gate = spatial_mixing(weight, v[:, 0], bias=bias, mask=mask, impl=self.impl)
        if self.tiny_out is not None:
            k, v = k.chunk(2, -1)
            gate = gate + self.tiny_out(softmax_attention(q, k, v, mask=mask, impl=self.impl)[:, 0])
        return z1 * gate

    def _merge(self, x, mixed):
        return self.narrow(mixed)

    def _observe(self, x, context, mask):
        if self.qkv is not None:
            return Observation()
        T = x.shape[1]
        v = self._split(x, None)[2]
        weights = self._first(T) * mask.dense(T, T, device=x.device)
        weights = weights.expand(x.shape[0], 1, T, T)
        return Observation(v=v, weights=weights, heads=weights @ v)

    _observe_heads = Mixer._observe_heads  # the gate is not theirs
