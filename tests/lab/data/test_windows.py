"""Windows of a byte stream."""

import numpy as np
import pytest

from regard.core import OptionError
from regard.lab.data.windows import IGNORED, START, cut

TEXTS = [b"alpha", b"bc", bytes(range(256)), b"omega omega"]


@pytest.mark.parametrize("length", [1, 2, 7, 16, 64, 276, 277])
def test_every_byte_is_asked_for_once_and_in_order_by_the_token_before_it(length):
    tokens, labels = cut("x", TEXTS, length)
    assert tokens.shape == labels.shape and tokens.shape[1] == length
    asked = labels != IGNORED
    assert bytes((labels[asked] - 1).tolist()) == b"".join(TEXTS) and START not in labels
    inside = asked[:, :-1]
    assert np.array_equal(labels[:, :-1][inside], tokens[:, 1:][inside])
    assert (tokens == START).sum() >= len(TEXTS) - 1


def test_too_long_a_window_is_refused():
    with pytest.raises(OptionError, match=r"length \(400\)"):
        cut("x", TEXTS, 400)
