"""Gated linear attention (Yang et al. 2023, arXiv 2312.06635), and HGRN2 (Qin et al. 2024, arXiv 2404.07904).

    S_t = diag(a_t) S_(t-1) + k_t v_t^T,   o_t = S_t^T q_t / sqrt(K),   y = W_out (norm(o) silu(W_g x))
    gla     a = sigmoid(W_2 W_1 x + c)^(1/16)                  q, k, v = W x
    hgrn2   a = l + (1 - l) sigmoid(W x),   k = 1 - a          q = silu(W x),   v = W x;   no scale and no gate

W_1 has rank 16. GLA's released models have keys half as wide as values; here both have dim / num_heads channels unless `key_dim` says
otherwise. l is the layer's `lower_bound`, from 0 in the first to below 1 in the last. Cost: T K V a head, and T C K in chunks of C = 16;
state: K V a head.

Args:
    key_dim: channels of a query and of a key; None: dim / num_heads
    form: "gla" or "hgrn2"
    lower_bound: least decay of hgrn2, from 0 to below 1
    conv_size: tokens that a short convolution sees; None: there is none
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F

from regard.core import OptionError
from regard.functional.rows import apart, wide_type
from regard.mixers._scan import ScanMixer
from regard.nn.starts import projection

RANK, POWER = 16, 1 / 16


class GatedLinear(ScanMixer):
    __doc__ = __doc__
    name = "gated_linear"
    paper = "Yang et al. 2023, arXiv 2312.06635"
    variants = {
        "hgrn2": {"form": "hgrn2", "lower_bound": 0.3},
        "conv": {"conv_size": 4, "key_dim": 4},
    }
    activation = staticmethod(torch.positive)

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        key_dim: int | None = None,
        form: Literal["gla", "hgrn2"] = "gla",
        lower_bound: float = 0.0,
        conv_size: int | None = None,
    ):
        if not 0 <= lower_bound < 1 or (lower_bound and form == "gla"):
            raise OptionError(
                f"gated_linear: lower_bound ({lower_bound}) must be from 0 to below 1, and belongs to form='hgrn2'"
            )
        tied = form == "hgrn2"
        super().__init__(dim, num_heads, key_dim, conv_size=conv_size, gate=not tied)
        self.tied = tied
        self.lower_bound = lower_bound
        self.decay = None if tied else projection(dim, self.widths[1], RANK, bias=0.0)

    def _terms(self, x, q, k, v, after):
        if self.decay is None:
            logit, least = k.to(wide_type(k)), self.lower_bound
            low = math.log(least) if least else -math.inf
            g = F.softplus(low - logit) + F.logsigmoid(logit)
            return F.silu(q), (1 - least) * (-logit).sigmoid(), v, None, g  # 1 - a would be rounded
        g = POWER * apart(F.logsigmoid(self.decay(x)), self.key_dim)
        return q * q.shape[-1] ** -0.5, k, v, None, g
