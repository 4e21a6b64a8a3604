import numpy as np
import pytest

from regard.core import OptionError
from regard.lab.data.windows import IGNORED, START, cut

TEXTS = [b"alpha", b"bc", bytes(range(256)), b"omega omega"]


@pytest.mark.parametrize("length", [1, 2, 7, 16, 64, 276, 277])
def test_every_byte_is_asked_for_once_and_in_order(length):
    windows = cut("x", TEXTS, length)
    assert windows.tokens.shape == windows.labels.shape and windows.tokens.shape[1] == length
    asked = windows.labels[windows.labels != IGNORED]
    assert bytes((asked - 1).tolist()) == b"".join(TEXTS)


def test_labels_are_the_next_tokens():
    windows = cut("x", TEXTS, 16)
    inside = windows.labels[:, :-1]
    asked = inside != IGNORED
    assert np.array_equal(inside[asked], windows.tokens[:, 1:][asked])
    assert (windows.tokens == START).sum() >= len(TEXTS) - 1
    assert START not in windows.labels


def test_too_long_a_window_is_refused():
    with pytest.raises(OptionError, match=r"length \(400\)"):
        cut("x", TEXTS, 400)
