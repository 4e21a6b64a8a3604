"""Two causal mixers without attention that questions compare with: they are no part of the catalogue, and stream nothing.

gru          y = W_out GRU(x)
convolution  y_i = sum_s W_s x_(i - s),  s = 0 .. size - 1
"""

from typing import Any

import torch.nn.functional as F
from torch import nn

from regard.core import Capabilities, Mixer, No
from regard.nn.starts import Glorot, glorot

_PLAIN = No("it is a baseline of the laboratory")
_WHAT: dict[str, Any] = dict(causal=True, pairwise=_PLAIN, global_tokens=_PLAIN, cross=_PLAIN, streaming=_PLAIN, attention_map=_PLAIN)  # fmt: skip
_CAUSAL = Capabilities(bidirectional=No("it reads forwards alone"), positions=frozenset({"absolute"}), time="T D^2", memory="T D", **_WHAT)  # fmt: skip


class Gru(Mixer):
    """Cho et al. 2014, with as many channels as the tokens have."""

    name = "gru"
    family = "recurrent"
    paper = "Cho et al. 2014, arXiv 1406.1078"
    capabilities = _CAUSAL

    def __init__(self, dim: int):
        super().__init__(dim)
        self.gru = nn.GRU(dim, dim, batch_first=True)
        self.out = Glorot(dim, dim, bias=False)
        glorot(self.out)

    def mix(self, x, context, mask):
        return self.out(self.gru(x)[0])


class Convolution(Mixer):
    """Every output reads the last `size` tokens, its own included, through a matrix for each distance."""

    name = "convolution"
    family = "convolution"
    paper = "Gehring et al. 2017, arXiv 1705.03122"
    capabilities = _CAUSAL

    def __init__(self, dim: int, *, size: int):
        super().__init__(dim)
        self.size = size
        self.convolution = nn.Conv1d(dim, dim, size)

    def mix(self, x, context, mask):
        return self.convolution(F.pad(x.mT, (self.size - 1, 0))).mT
