"""Checks of a data source's options, made before any work."""

from pathlib import Path

from regard.core import MissingDataError, OptionError


def check_seed(who: str, seed: int) -> None:
    """A seed is an integer from 0 to 2**32 - 1, which every generator takes."""
    if isinstance(seed, bool) or not isinstance(seed, int) or not 0 <= seed < 2**32:
        raise OptionError(
            f"{who}: seed ({seed!r}) must be an integer of at least 0 and below 2**32"
        )


def need(path: Path, layout: str) -> Path:
    """The path, if it is there. Raises MissingDataError, which names the expected layout."""
    if not path.exists():
        raise MissingDataError(f"there is no {path}. Expected: {layout}")
    return path
