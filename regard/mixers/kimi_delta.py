"""Kimi Delta Attention (Moonshot AI 2025, arXiv 2510.26692): the gated delta rule with a decay for each channel of keys.

    S_t = diag(a_t) S_(t-1) + k_t u_t^T,   u_t = b_t (v_t - (diag(a_t) S_(t-1))^T k_t),   o_t = S_t^T q_t / sqrt(K)
    y = W_out (norm(o) sigmoid(W_g x)),   q, k = unit(silu(conv(W x))),   b = sigmoid(W x),   a = exp(-exp(A) softplus(W_a x + c))

W_a and W_g are products of two matrices, of rank dim / num_heads. exp(A) starts uniform in [1, 16]. Cost: T K V a head, and T C K in chunks of
C = 16, whose pairs have a decay for each channel; state: K V a head, and the convolutions' last inputs.

Args:
    key_dim: channels of a query and of a key; None: dim / num_heads
    value_dim: channels of a value; None: dim / num_heads
    conv_size: tokens that the short convolution sees; None: there is none
    least_decay: log a is at least this (None: no bound); the released code's fast form takes -5
"""

from torch.nn.functional import sigmoid

from regard.core import Below0
from regard.functional.rows import ranged
from regard.mixers._scan import ScanMixer, units_of
from regard.nn.recurrent import Decay
from regard.nn.starts import projection


class KimiDelta(ScanMixer):
    __doc__ = __doc__
    name = "kimi_delta"
    paper = "Moonshot AI 2025, arXiv 2510.26692"
    variants = {"bounded": {"least_decay": -0.5, "conv_size": None}, "wide": {"value_dim": 10}}
    gate_of = staticmethod(sigmoid)

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        key_dim: int | None = None,
        value_dim: int | None = None,
        conv_size: int | None = 4,
        least_decay: Below0 | None = None,
    ):
        rank = dim // num_heads
        super().__init__(dim, num_heads, key_dim, value_dim, conv_size, gate_rank=rank)
        self.least_decay = least_decay
        self.write = projection(dim, num_heads)
        self.decay = Decay(dim, num_heads, channels=self.key_dim, rank=rank, rates=(1.0, 16.0))

    def _terms(self, x, q, k, v, after):
        g = self.decay(x)[0]
        g = g if self.least_decay is None else g.clamp_min(self.least_decay)
        return *units_of(x, q, k), v, ranged(self.write(x))[0].sigmoid().mT, g
