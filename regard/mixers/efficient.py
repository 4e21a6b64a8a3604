"""Efficient attention (Shen et al. 2018, arXiv 1812.01243).

    y = rho_q(Q) (rho_k(K)^T V),   rho_q: softmax over a query's features,   rho_k: softmax over positions, in every channel

Cost: T K V per head; the weights are never formed, and their rows sum to one. No scale on q or k.
Causal order is not in the paper: rho_k then runs over the positions so far, so that the last row is that of the
bidirectional form and each channel has its own denominator. State: K (V + 2) per head. No rotary positions: a rotation mixes channels, and each has its own denominator. `num_kv_heads`: arXiv 2305.13245.
`normaliser="scaling"` is the paper's other form, Q K^T V / (number of keys), which divides by all keys at once.

Args:
    normaliser: how scores become weights
"""

from typing import Literal

from jaxtyping import Float
from torch import Tensor

from regard.core import Keys, Mask, No, Streamed, as_state
from regard.functional.cache import Lengths, advance
from regard.functional.efficient import (
    causal_means,
    efficient_attention,
    no_keys,
    present_keys,
    summed,
)
from regard.functional.features import present
from regard.functional.rows import Impl, widened
from regard.mixers._base import HeadsMixer
from regard.mixers._recurrent import RecurrentMixer


@as_state
class State(Streamed):
    sums = ("S", "z", "m")
    S: Float[Tensor, "B H K V"]  # sum of exp(k - m) v in every channel
    z: Float[Tensor, "B H K"]  # sum of exp(k - m)
    m: Float[Tensor, "B H K"]
    length: Lengths


class Efficient(HeadsMixer):
    __doc__ = __doc__
    name = "efficient"
    family = "linear"
    paper = "Shen et al. 2018, arXiv 1812.01243"
    operations = ("efficient",)
    capabilities = RecurrentMixer.capabilities.but(
        time="T H K V", state="H K V", finite_to=10.0, exchange="means"
    )
    variants = {"scaling": {"normaliser": "scaling"}, "grouped": {"num_kv_heads": 1}}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        normaliser: Literal["softmax", "scaling"] = "softmax",
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl, alike=True)
        self.normaliser = normaliser
        if normaliser == "scaling":
            at_once = No("normaliser='scaling' divides by the number of all keys")
            self.declare(causal=at_once, streaming=at_once, exchange=at_once)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        if self.normaliser == "softmax":
            return self.heads.merge(efficient_attention(q, k, v, mask=mask, impl=self.impl))
        return self.heads.merge(q @ (scaled(k, mask).mT @ v))

    def _keep(self, context, valid):
        k = present_keys(self.heads.keys(context), valid)
        return summed(k, self.heads.values(context), valid), k.logsumexp(2)

    def _read(self, x, kept, at):
        return self.heads.queries(x).softmax(-1) @ kept[0]

    def _start(self, length, max_len):
        (like,) = widened(self.heads.zeros(len(length), 0))
        return State(*no_keys(like, like.shape[3]), length)

    def _step(self, x, state, valid, donate):
        q, k, v = widened(*self.heads.split(x, None, state.length))
        k = present_keys(k, valid)
        sums = widened(state.S, state.z, state.m)
        y, S, z, m = causal_means(q.softmax(-1), k, v, *sums, donate=donate)
        return y.type_as(x), State(S, z, m, advance(state.length, valid, x.shape[1]))


def scaled(k: Keys, mask: Mask) -> Keys:
    """The valid keys over their number; zero where there is none."""
    if mask.valid is None:
        return k / k.shape[2]
    return present(k, mask.valid) / mask.valid.sum(1).clamp_min(1)[:, None, None, None]
