"""Positions that a mixer takes into its scores, made from a name and options."""

from regard.core import Mixer, OptionError, Options, UnsupportedError
from regard.positions import POSITIONS, Position, make


def inside(
    mixer: Mixer,
    num_heads: int,
    name: str | None,
    options: Options | None,
    head_dim: int | None = None,
) -> Position | None:
    """The module of this kind for `mixer`; None where no name is given.

    Raises UnknownNameError, UnsupportedError where `mixer.capabilities.positions` lacks the kind, and OptionError.
    """
    if name is None:
        if options:
            raise OptionError(f"{mixer.name}: position_options were given without a position")
        return None
    cls = POSITIONS[name]
    takes = mixer.capabilities.positions
    if name not in takes:
        raise UnsupportedError(
            f"{mixer.name} does not support {name} positions: it takes {', '.join(sorted(takes))}"
        )
    width = head_dim or mixer.dim // num_heads
    made = make(cls, {"dim": mixer.dim, "num_heads": num_heads}, options or {})
    given = getattr(made, "channels", None)
    turned = given or width
    if cls.kind == "rotation" and (turned % 2 or turned > width):
        known = "channels" if given else "head_dim" if head_dim else "dim / num_heads"
        raise OptionError(
            f"{mixer.name}: rotary positions turn channels in pairs, so {known} ({turned}) must be even, and at most {width}"
        )
    return made
