"""A causal mixer without attention that these questions compare with.

convolution  y_i = sum_s W_s x_(i - s),  s = 0 .. size - 1
"""

import torch.nn.functional as F
from torch import nn

from regard.core import Mixer
from regard.lab.experiment.baselines import Gru


class Convolution(Mixer):
    """Every output reads the last `size` tokens, its own included, through a matrix for each distance."""

    name = "convolution"
    family = "convolution"
    paper = "Gehring et al. 2017, arXiv 1705.03122"
    capabilities = Gru.capabilities

    def __init__(self, dim: int, *, size: int):
        super().__init__(dim)
        self.size = size
        self.convolution = nn.Conv1d(dim, dim, size)

    def mix(self, x, context, mask):
        return self.convolution(F.pad(x.mT, (self.size - 1, 0))).mT
