"""Multi-head latent attention, MLA (DeepSeek-AI 2024, arXiv 2405.04434): keys and values of all heads are made of one short latent.

    c = norm(W_c x)  of `latent_dim`,   r = rotated(W_r x)  of `rotary_dim`, shared by all heads
    k_h = [W_k^h c; r],   v_h = W_v^h c,   q_h = [a part of `nope_dim`; a rotated one],   softmax(q k^T / sqrt(nope_dim + rotary_dim))

Queries come from x, or from a normed latent of their own (`query_rank`). Cost: softmax attention's. The state is c and r alone, latent_dim +
rotary_dim numbers a token for all heads together. A stream reads it in the absorbed order: W_k^h goes into the query and W_v^h behind
the sum, so that all heads attend to one key [c; r] and one value c; a whole request expands keys and values. Both orders are the same sums.
Released models have latent_dim 512, nope_dim = V = 128, rotary_dim 64; here dim / 4, dim / num_heads, and half of it (even).
`rotary_dim=0` has no positions.

Args:
    latent_dim: channels of the latent that keys and values are made of; None: dim / 4
    nope_dim: channels of a query and of a key that are not turned; None: dim / num_heads
    rotary_dim: channels that are turned; None: half of dim / num_heads, made even; 0: none
    value_dim: channels of a value; None: dim / num_heads
    query_rank: channels of the latent that queries are made of; None: they are made of the token
    base: longest wavelength of the rotation, in units of 2 pi tokens; None: nothing is turned, as in Kimi Linear (arXiv 2510.26692)
    pairing: channels that are turned together: of both halves, or neighbours
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import No
from regard.core.options import Above0, Count
from regard.core.shapes import check_divisible, check_even
from regard.functional.positions.rotary import Pairing, rotate
from regard.functional.rows import Impl, apart, first_places, side_by_side
from regard.functional.softmax import softmax_attention
from regard.mixers._base import ALL
from regard.mixers._cached import CachedMixer
from regard.nn.heads import alone
from regard.nn.norm import RMSNorm
from regard.nn.starts import Glorot, glorot


class Latent(CachedMixer):
    __doc__ = __doc__
    name = "latent"
    family = "softmax"
    operations = ("softmax",)
    paper = "DeepSeek-AI 2024, arXiv 2405.04434"
    capabilities = ALL.but(
        cross=No("relative positions need queries and keys on one axis"), state="T D"
    )
    variants = {
        "no_positions": {"rotary_dim": 0, "latent_dim": 5},
        "not_turned": {"base": None},
        "query_rank": {"query_rank": 7, "pairing": "adjacent", "value_dim": 5},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        latent_dim: int | None = None,
        nope_dim: int | None = None,
        rotary_dim: Count | None = None,
        value_dim: int | None = None,
        query_rank: int | None = None,
        base: Above0 | None = 10000.0,
        pairing: Pairing = "half",
        impl: Impl = "auto",
    ):
        super().__init__(dim, impl)
        check_divisible(dim=dim, num_heads=num_heads)
        self.num_heads = H = num_heads
        self.nope_dim = nope_dim or dim // H
        self.rotary_dim = dim // H // 4 * 2 if rotary_dim is None else rotary_dim
        check_even(rotary_dim=self.rotary_dim)
        self.value_dim = value_dim or dim // H
        self.latent_dim = latent_dim or max(1, dim // 4)
        self.base, self.pairing = base, pairing
        self.compress = Glorot(dim, self.latent_dim + self.rotary_dim)
        self.norm = RMSNorm(self.latent_dim)
        self.query_latent = Glorot(dim, query_rank) if query_rank else nn.Identity()
        self.query_norm = RMSNorm(query_rank) if query_rank else nn.Identity()
        width = H * (self.nope_dim + self.rotary_dim)
        self.query = Glorot(query_rank or dim, width)
        self.expand = Glorot(self.latent_dim, H * (self.nope_dim + self.value_dim))
        self.out = Glorot(H * self.value_dim, dim)
        glorot(self)
        if not self.rotary_dim or base is None:
            self.declare(cross=True, exchange="keys")

    def _split(self, x, context, at=None):
        """Queries of all heads; for keys and values one latent, and no values."""
        z = self.query_norm(self.query_latent(x))
        q = apart(self.query(z), self.nope_dim + self.rotary_dim)
        c, r = self.compress(x if context is None else context).split(
            [self.latent_dim, self.rotary_dim], -1
        )
        if self.rotary_dim and self.base is not None:
            at = first_places(x) if at is None else at.clamp_min(0)
            plain, turned = q.split([self.nope_dim, self.rotary_dim], -1)
            turned, r = (rotate(z, at, self.base, self.pairing) for z in (turned, r[:, None]))
            q, r = torch.cat([plain, turned], -1), r[:, 0]
        k = torch.cat([self.norm(c), r], -1)[:, None]
        return q, k, k[..., :0]

    def _attend(self, q, k, v, mask, query=None, key=None):
        """A whole request expands keys and values; a stream folds what expands them into query and output. v: unit values for a map."""
        how = {"mask": mask, "scale": (self.nope_dim + self.rotary_dim) ** -0.5, "impl": self.impl}
        if query is None or not alone(self.expand):
            k, values = self._expanded(k)
            v = v.expand(-1, self.num_heads, -1, -1) if v.shape[3] else values
            return softmax_attention(q, k, v, **how)
        weight = self.expand.weight.unflatten(0, (self.num_heads, -1))
        of_k, of_v = weight.split([self.nope_dim, self.value_dim], 1)
        plain, turned = q.split([self.nope_dim, self.rotary_dim], -1)
        q = torch.cat([plain @ of_k, turned], -1)
        return softmax_attention(q, k, k[..., : self.latent_dim], **how) @ of_v.mT

    def _expanded(self, k: Float[Tensor, "B 1 S _"]) -> tuple[Tensor, Tensor]:
        """Keys and values of all heads."""
        c, r = k[:, 0].split([self.latent_dim, self.rotary_dim], -1)
        z = apart(self.expand(c), self.nope_dim + self.value_dim)
        k, v = z.split([self.nope_dim, self.value_dim], -1)
        return torch.cat([k, r[:, None].expand(-1, self.num_heads, -1, -1)], -1), v

    def _merge(self, x, mixed):
        return self.out(side_by_side(mixed))

    def _shown(self, x, context):
        q, k, _ = self._split(x, context)
        return q, *self._expanded(k)
