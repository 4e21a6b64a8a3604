"""Positions of tokens: kinds that are added to embeddings, and kinds that a mixer takes into its scores."""

from regard.core import Catalog, check_calls
from regard.positions.absolute import AbsolutePosition, Learned, NoPosition, Sinusoidal
from regard.positions.base import Position, make
from regard.positions.grid import Axial, Coordinates
from regard.positions.relative import T5, Alibi, RelativePosition, Rotary

POSITIONS: Catalog[type[Position]] = Catalog(
    "position",
    (NoPosition, Sinusoidal, Learned, Axial, Coordinates, Rotary, Alibi, T5, RelativePosition),
)

__all__ = ["POSITIONS", "AbsolutePosition", "NoPosition", "Position", "make"]

check_calls(globals(), __all__)
