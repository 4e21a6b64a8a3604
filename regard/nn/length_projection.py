"""Learned matrices that make a fixed number of slots out of up to `max_len` keys and values."""

import math

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.options import CheckedOptions


class LengthProjection(nn.Module, metaclass=CheckedOptions):
    """E and F [H|1 M max_len] of Linformer (arXiv 2006.04768), M = num_slots; `tied`: F is E. U(-1/sqrt(max_len), 1/sqrt(max_len)).

    A shorter sequence uses the first columns. To share one matrix among layers, hand one object to all of them.
    """

    def __init__(self, max_len: int, num_slots: int, *, num_heads: int = 1, tied: bool = True):
        super().__init__()
        self.max_len, self.num_slots = max_len, num_slots
        self.key = nn.Parameter(torch.empty(num_heads, num_slots, max_len))
        self.value = None if tied else nn.Parameter(torch.empty(num_heads, num_slots, max_len))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for matrix in self.parameters():
            nn.init.uniform_(matrix, -1 / math.sqrt(self.max_len), 1 / math.sqrt(self.max_len))

    def forward(self, S: int) -> tuple[Float[Tensor, "1 h M S"], Float[Tensor, "1 h M S"]]:
        """E and F for a sequence of S tokens."""
        E = self.key[None, :, :, :S]
        return E, E if self.value is None else self.value[None, :, :, :S]
