"""Sizes of a form."""

import pytest

import regard


@pytest.mark.parametrize("size", [0, -1, 2.0, True, "4"])
def test_sizes_are_positive_integers(size):
    with pytest.raises(regard.OptionError, match="tile must be a positive integer"):
        regard.Form(tile=size)
