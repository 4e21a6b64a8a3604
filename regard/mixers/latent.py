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

from regard.core import Above0, Count, check_divisible, check_even
from regard.functional.positions.rotary import Pairing
from regard.functional.rows import Impl, first_places
from regard.functional.softmax import latent_attention, softmax_attention
from regard.mixers._base import ALL, ONE_AXIS
from regard.mixers._cached import CachedMixer
from regard.nn.heads import LatentHeads, alone


class Latent(CachedMixer):
    __doc__ = __doc__
    name = "latent"
    family = "softmax"
    operations = ("softmax",)
    paper = "DeepSeek-AI 2024, arXiv 2405.04434"
    capabilities = ALL.but(cross=ONE_AXIS, state="T D")
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
        self.num_heads, K = num_heads, dim // num_heads
        turned = K // 4 * 2 if rotary_dim is None else rotary_dim
        check_even(rotary_dim=turned)
        widths = latent_dim or max(1, dim // 4), nope_dim or K, turned, value_dim or K
        self.latent = LatentHeads(dim, num_heads, *widths, query_rank, base, pairing)
        if not turned or base is None:
            self.declare(cross=True, exchange="keys")

    def _split(self, x, context, at=None):
        """Queries of all heads; for keys and values one latent, and no values."""
        q, k = self.latent.split(x, context, first_places(x) if at is None else at)
        return q, k, k[..., :0]

    def mix(self, x, context, mask):
        return self.latent.merge(self._mixed(x, context, mask))

    def _mixed(self, x, context, mask, of=None):
        """A whole request expands keys and values."""
        q, k, v = self._shown(x, context)
        return softmax_attention(q, k, v if of is None else of(v), mask=mask, impl=self.impl)

    def _attend(self, q, k, v, mask, query=None, key=None):
        """A stream folds what expands them into query and output, where that is the weight alone."""
        if query is None or not alone(self.latent.expand):
            return softmax_attention(q, *self.latent.expanded(k), mask=mask, impl=self.impl)
        return latent_attention(q, k, self.latent.weight, mask=mask, impl=self.impl)

    def _merge(self, x, mixed):
        return self.latent.merge(mixed)

    def _shown(self, x, context):
        q, k, _ = self._split(x, context)
        return q, *self.latent.expanded(k)
