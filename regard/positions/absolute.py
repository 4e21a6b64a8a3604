"""Positions that are added to the embeddings, once, before the first block: module(x [B T D], position [B T]) -> x.

`position` counts the valid tokens of each row from 0, so that padding on any side changes nothing.
"""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import Above0, Positions, ShapeError, Tokens, check_tokens, is_dense, shown
from regard.functional.cache import readable
from regard.functional.positions.rotary import Pairing, sinusoid
from regard.positions.base import Position


class AbsolutePosition(Position):
    """Base of the added kinds. `max_len` is None where any length will do."""

    kind = "absolute"
    max_len: int | None = None
    dim: int

    def forward(self, x: Tokens, position: Positions) -> Tokens:
        """Raises ShapeError for what does not fit, and beyond `max_len` (read off the values where that costs no device synchronisation)."""
        who = f"{self.name} positions"
        check_tokens(who, "x", x, self.dim)
        B, T, _ = x.shape
        if (
            not is_dense(position)
            or position.dtype not in (torch.int64, torch.int32)
            or tuple(position.shape) not in ((1, T), (B, T))
            or position.device != x.device
        ):
            raise ShapeError(
                f"{who}: position must be integers [{B}|1, {T}] on {x.device}, got {shown(position)}"
            )
        if self.max_len is not None:
            known = readable(position) and position.numel()
            first, last = map(int, position.aminmax()) if known else (0, T - 1)
            if first < 0:
                raise ShapeError(f"{who}: position {first} is before the first token, which is 0")
            if last >= self.max_len:
                raise ShapeError(f"{who}: length ({last + 1}) exceeds max_len ({self.max_len})")
        return x + self.encode(position, x.dtype)

    def encode(self, position: Positions, dtype: torch.dtype) -> Float[Tensor, "b T D"]:
        raise NotImplementedError


class NoPosition(AbsolutePosition):
    """No positions: for mixers that know the order by themselves, or should not."""

    name = "none"

    def __init__(self):
        super().__init__()

    def forward(self, x, position):
        return x


class Sinusoidal(AbsolutePosition):
    """Vaswani et al. 2017, arXiv 1706.03762; any length.

    Args:
        base: longest wavelength of the sinusoids, in units of 2 pi tokens
        pairing: channels that are turned together: of both halves, or neighbours
    """

    name = "sinusoidal"

    def __init__(self, dim: int, *, base: Above0 = 10000.0, pairing: Pairing = "adjacent"):
        super().__init__()
        self.dim = dim
        self.base = base
        self.pairing = pairing

    def encode(self, position, dtype):
        return sinusoid(position, self.dim, base=self.base, pairing=self.pairing, dtype=dtype)


class Learned(AbsolutePosition):
    """One trained vector for each position, started at the sinusoids' root mean square."""

    name = "learned"

    def __init__(self, dim: int, *, max_len: int):
        super().__init__()
        self.dim = dim
        self.max_len = max_len
        self.table = nn.Parameter(torch.empty(max_len, dim))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.table, std=0.5**0.5)

    def encode(self, position, dtype):
        return self.table[position].to(dtype)
