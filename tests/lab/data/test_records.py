"""Items of a split."""

import numpy as np
import pytest
import torch

from regard.lab.data.records import Examples, checksum

TOKENS, LENGTHS, LABELS = np.array([5, 6, 7, 8, 9, 4]), np.array([3, 1, 2]), np.array([1, 0, 2])


def test_items_are_cut_where_the_lengths_say():
    examples = Examples(TOKENS, LENGTHS, LABELS)
    assert [item["tokens"].tolist() for item in examples] == [[5, 6, 7], [8], [9, 4]]
    assert [int(item["label"]) for item in examples] == [1, 0, 2]
    assert examples[-1]["tokens"].tolist() == [9, 4] and examples.lengths.tolist() == [3, 1, 2]
    assert examples[0]["tokens"].dtype == examples[0]["label"].dtype == torch.int64
    with pytest.raises(IndexError):
        examples[3]
    each = Examples(TOKENS, LENGTHS, np.array([6, 7, -100, -100, 4, -100]))
    assert [item["label"].tolist() for item in each] == [[6, 7, -100], [-100], [4, -100]]


@pytest.mark.parametrize(("place", "value"), [(0, [5, 6, 7, 8, 9, 3]), (1, [2, 2, 2]), (2, [1, 0, 3])])  # fmt: skip
def test_the_checksum_sees_tokens_borders_and_labels(place, value):
    given = [TOKENS, LENGTHS, LABELS]
    one, same = Examples(*given), Examples(*given)
    given[place] = np.array(value)
    other = Examples(*given)
    assert checksum(one) == checksum(same) != checksum(other)
    assert checksum(one, other) != checksum(other, one)
