"""Checks of a data source's options, made before any work."""

from pathlib import Path

from regard.core import MissingDataError, OptionError, StoredDataError


def check_sizes(who: str, **sizes: int) -> None:
    """`check_sizes("digits", test_size=-3)` -> "digits: test_size (-3) must be a positive integer"."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise OptionError(f"{who}: {name} ({size!r}) must be a positive integer")


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


def need_file(path: Path, layout: str) -> Path:
    """The same of a file. Raises StoredDataError for a folder."""
    if need(path, layout).is_dir():
        raise StoredDataError(f"{path} is a folder. Expected: {layout}")
    return path
