"""Checks of a data source's options, made before any work."""

from regard.core import OptionError


def check_sizes(who: str, **sizes: int) -> None:
    """`check_sizes("digits", test_size=-3)` -> "digits: test_size (-3) must be a positive integer"."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise OptionError(f"{who}: {name} ({size!r}) must be a positive integer")


def check_seed(who: str, seed: int) -> None:
    """A seed is an integer from 0 on."""
    if isinstance(seed, bool) or not isinstance(seed, int) or seed < 0:
        raise OptionError(f"{who}: seed ({seed!r}) must be an integer of at least 0")
