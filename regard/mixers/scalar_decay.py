"""One decay a head: RetNet (Sun et al. 2023, arXiv 2307.08621), lightning attention (arXiv 2401.04658), Mamba-2 (Dao and Gu 2024, arXiv 2405.21060).

    S_t = a_t S_(t-1) + k_t v_t^T,   o_t = S_t^T q_t
    retention   a = 1 - 2^(-5-h) of head h, from 0      q, k = rotated W x,  v = W x;  q / sqrt(K)     y = W_out (norm_h(o) silu(W_g x))
    lightning   a = exp(-2^(-8 (h+1) / H))              q, k, v = silu(W x)                            y = W_out (norm(o) sigmoid(W_g x))
    mamba2      a = exp(-exp(A) s),  s = softplus(W x + c)   q, k, v = silu(conv(W x)),  s k for k      y = W_out norm((o + d v) silu(W_g x))

norm_h is of each head, norm of all channels. In mamba2 all heads share their queries and keys (C and B there, of `key_dim` channels, 128 in the
released models), values have 2 dim / H channels, and exp(A) starts uniform in [1, 16]. RetNet's values have twice the width of its keys in the
paper; here as many channels unless `value_dim` says otherwise. Lightning's decays are those of the first layer. Cost: T K V a head; state: K V a
head, and the convolution's last inputs.

Args:
    form: "retention", "lightning" or "mamba2"
    key_dim: channels of a query and of a key; None: dim / num_heads
    value_dim: channels of a value; None: dim / num_heads, in mamba2 twice as many
"""

from typing import Literal

import torch
from torch import nn

from regard.core import check_even
from regard.functional.positions.rotary import rotate
from regard.functional.rows import side_by_side, upto, wide_type
from regard.mixers._scan import ScanMixer
from regard.nn.norm import RMSNorm
from regard.nn.recurrent import Decay
from regard.nn.starts import unset


class ScalarDecay(ScanMixer):
    __doc__ = __doc__
    name = "scalar_decay"
    paper = "Sun et al. 2023, arXiv 2307.08621"
    capabilities = ScanMixer.capabilities.but(positions=frozenset({"absolute"}))
    variants = {
        "lightning": {"form": "lightning"},
        "mamba2": {"form": "mamba2", "key_dim": 10},
        "wide": {"value_dim": 10},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        form: Literal["retention", "lightning", "mamba2"] = "retention",
        key_dim: int | None = None,
        value_dim: int | None = None,
    ):
        mamba = form == "mamba2"
        if mamba and value_dim is None:
            value_dim = 2 * dim // num_heads
        super().__init__(
            dim,
            num_heads,
            key_dim,
            value_dim,
            conv_size=4 if mamba else None,
            num_key_heads=1 if mamba else None,
            conv_bias=True,
        )
        self.form = form
        if form == "retention":
            check_even(key_dim=self.key_dim)
            self.activation = torch.positive
        else:
            self.norm = RMSNorm(self.widths[2])
        if form == "lightning":
            self.gate_of = torch.sigmoid
        self.decay = Decay(dim, num_heads, rates=(1.0, 16.0)) if mamba else None
        self.skip = unset(num_heads) if mamba else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.skip is not None:
            nn.init.ones_(self.skip)

    def _terms(self, x, q, k, v, after):
        if self.decay is not None:
            g, step = self.decay(x)
            return q, k * step, v, None, g[..., 0]
        head = torch.arange(self.num_heads, device=x.device, dtype=wide_type(x))
        if self.form == "lightning":
            g = -(2 ** (-8 * (head + 1) / self.num_heads))
        else:
            g = (-(2 ** (-5 - head))).log1p()
            place = upto(x.shape[1], x)
            place = place if after is None else after[:, None] + place
            q = rotate(q * q.shape[-1] ** -0.5, place)
            k = rotate(k, place)
        return q, k, v, None, g[:, None].expand(q.shape[:3])

    def _merge(self, x, mixed):
        if self.form == "retention":
            return super()._merge(x, mixed)
        assert self.gate is not None
        y = side_by_side(mixed)
        gate = self.gate_of(self.gate(x))
        return self.out(self.norm(y * gate) if self.form == "mamba2" else self.norm(y) * gate)
