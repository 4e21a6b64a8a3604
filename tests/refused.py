"""Calls that must be refused."""

from collections.abc import Callable

import pytest


def assert_refused(*cases: tuple[type[Exception], str, Callable[[], object]]) -> None:
    """Each is an error, what it says, a regular expression, and a call."""
    for error, said, call in cases:
        with pytest.raises(error, match=said):
            call()
