"""Learned maps of keys and values to fewer: matrices that make slots of up to `max_len` of them, networks that make one of each block."""

import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import CheckedModule, ShapeError
from regard.functional.rows import longer
from regard.nn.starts import Glorot, glorot, uniform, unset


class LengthProjection(CheckedModule):
    """E and F [H|1 M max_len] of Linformer (arXiv 2006.04768), M = num_slots; `tied`: F is E. U(-1/sqrt(max_len), 1/sqrt(max_len)).

    A shorter sequence uses the first columns. To share one matrix among layers, hand one object to all of them.
    """

    def __init__(self, max_len: int, num_slots: int, *, num_heads: int = 1, tied: bool = True):
        super().__init__()
        self.max_len = max_len
        self.num_slots = num_slots
        self.key = unset(num_heads, num_slots, max_len)
        self.value = None if tied else unset(num_heads, num_slots, max_len)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for matrix in self.parameters():
            uniform(matrix, self.max_len)

    def forward(self, S: int) -> tuple[Float[Tensor, "1 h M S"], Float[Tensor, "1 h M S"]]:
        """E and F for a sequence of S tokens. Raises ShapeError for more than max_len."""
        if not 0 <= S <= self.max_len:
            raise ShapeError(
                f"LengthProjection has columns for 0 to {self.max_len} tokens, not {S}"
            )
        E = longer(self.key, S, 2)[None, :, :, :S]
        return E, E if self.value is None else longer(self.value, S, 2)[None, :, :, :S]


class BlockProjection(nn.Module):
    """W_2 gelu(W_1 [z_1 + p_1; ..; z_C + p_C] + b_1) + b_2 of each block of C tokens; hidden channels: as many as a token has (arXiv 2502.11089, 3.3.1)."""

    def __init__(self, block_size: int, dim: int):
        super().__init__()
        self.place = unset(block_size, dim)
        self.hidden = Glorot(block_size * dim, dim, bias=True)
        self.out = Glorot(dim, dim, bias=True)
        glorot(self)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.place, std=0.02)

    def forward(self, z: Float[Tensor, "*b C K"]) -> Float[Tensor, "*b K"]:
        return self.out(F.gelu(self.hidden((z + self.place).flatten(-2))))
