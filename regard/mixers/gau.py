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

Args:
    hidden_dim: channels of the hidden layer; None: a multiple of dim
    key_dim: channels of queries and keys
    scale: name of the rule that scales the weights
    relative_bias: form of the bias by distance; None: no bias
    bias: True: linear maps have a bias
"""

from typing import Literal

from regard.core import No, OptionError
from regard.functional.held import as_now
from regard.functional.rows import Impl, first_places
from regard.functional.squared_relu import squared_relu_attention
from regard.mixers._base import ALL
from regard.mixers._cached import CachedMixer
from regard.nn.gated import VIEW_STD, GatedUnit, RelativeBias, RelativeForm


class GAU(CachedMixer):
    __doc__ = __doc__
    name = "gau"
    family = "squared-relu"
    paper = "Hua et al. 2022, arXiv 2202.10447"
    num_heads = 1
    capabilities = ALL.but(
        includes_ffn=True, time="T^2 K + T^2 F", memory="T F", state="T F + T K", finite_to=1.0
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
        super().__init__(dim, impl, max_len=max_len)
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
            dim, hidden_dim or 2 * dim, key_dim, 2, std=VIEW_STD[scale], bias=bias
        )
        self.relative = RelativeBias(relative_bias, key_dim, max_len)
        self.score_scale = 1 / (max_len or 1) if scale == "paper" else key_dim**-0.5
        self.divisor = {"visible": None, "paper": 1.0, "ns": float(max_len or 1)}[scale]

    def _split(self, x, context, at=None):
        at = first_places(x) if at is None else at
        q, k = self.relative.turned(self.unit.views(x), at, self.score_scale)
        if context is not None:
            _, k = self.relative.turned(self.unit.views(context), first_places(context), 1.0)
        return q, k, self.unit.values(x if context is None else context)

    def _attend(self, q, k, v, mask, query=None, key=None):
        bias = None
        if self.relative.form == "toeplitz":  # a bias that is not in the channels
            at = as_now(self.relative).at

            def bias(rows):
                return at(key[:, None, None] - query[:, None, rows, None])

        return squared_relu_attention(
            q, k, v, mask=mask, bias=bias, divisor=self.divisor, impl=self.impl
        )

    def _merge(self, x, mixed):
        return self.unit.merge(x, mixed)

    def mix(self, x, context, mask):
        return self.unit.merge(x, self._mixed(x, context, mask))

    def _mixed(self, x, context, mask, of=None):
        """Queries count from 0, or, where causal, the last one is aligned with the last key."""
        query = key = first_places(x)
        if context is not None:
            key = first_places(context)
            query = mask.last_key(query.shape[1], key.shape[1], x.device) if mask.causal else query
        q, k, v = self._split(x, context, query)
        return self._attend(q, k, v if of is None else of(v), mask, query, key)
