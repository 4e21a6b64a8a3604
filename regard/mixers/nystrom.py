"""Nystromformer (Xiong et al. 2021, arXiv 2102.03902): softmax attention through landmarks, and a convolution of the values.

    y = concat_h( softmax(Q Kl^T / sqrt(K)) pinv(softmax(Ql Kl^T / sqrt(K))) softmax(Ql K^T / sqrt(K)) V + conv_h(V) ) W_out

Kl and Ql are means of runs of successive tokens; conv_h is one filter a head, over `conv_size` tokens around each. Over a context there is no
convolution. Cost: T m (K + V) a head, and m^3. With a landmark for every token it is softmax attention, but for six steps of an inverse.

Args:
    num_landmarks: runs of tokens, m
    conv_size: tokens that a filter sees, odd; None: there is none
"""

import torch.nn.functional as F
from torch import nn

from regard.core import No, OptionError
from regard.functional.nystrom import nystrom_attention
from regard.functional.rows import cleared, ranged
from regard.mixers._base import ALL, HeadsMixer
from regard.nn.starts import unset


class Nystrom(HeadsMixer):
    __doc__ = __doc__
    name = "nystrom"
    family = "low-rank"
    paper = "Xiong et al. 2021, arXiv 2102.03902"
    capabilities = ALL.but(
        causal=No("landmarks are means over tokens before and after a query"),
        streaming=No("landmarks are means over tokens before and after a query"),
        pairwise=No("keys are averaged before any query meets them"),
        approximates="softmax",
        time="T M K",
        memory="T M",
        state=None,
    )
    variants = {
        "few": {"num_landmarks": 4, "conv_size": None},
        "odd": {"num_landmarks": 5, "conv_size": 7},
    }

    def __init__(
        self, dim: int, *, num_heads: int, num_landmarks: int = 64, conv_size: int | None = 65
    ):
        super().__init__(dim, num_heads)
        if conv_size is not None and conv_size % 2 == 0:
            raise OptionError(
                f"nystrom: conv_size ({conv_size}) must be odd: as many tokens before as after"
            )
        self.num_landmarks = num_landmarks
        self.filters = unset(num_heads, conv_size) if conv_size else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.filters is not None:
            bound = self.filters.shape[1] ** -0.5
            nn.init.uniform_(self.filters, -bound, bound)

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        m, cross = self.num_landmarks, context is not None
        y = nystrom_attention(q, k, v, num_landmarks=m, mask=mask, cross=cross)
        if self.filters is None or cross:
            return self.heads.merge(y)
        filters = self.filters
        v = cleared(v, mask.valid)
        near = filters.shape[1] // 2
        rows = F.pad(v, (0, 0, near, near)).permute(0, 3, 1, 2).flatten(0, 1)  # B V, H, T
        # oneDNN's float16 form of this never ends on some processors
        rows, filters = ranged(rows, filters[:, None].type_as(v))
        near_by = F.conv1d(rows, filters, groups=self.num_heads).type_as(y)
        return self.heads.merge(y + near_by.unflatten(0, (v.shape[0], -1)).permute(0, 2, 3, 1))
