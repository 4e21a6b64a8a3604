"""Items of a split."""

import numpy as np
import pytest
import torch

from regard.lab.data.records import Examples, checksum

TOKENS, LENGTHS = np.array([5, 6, 7, 8, 9, 4]), np.array([3, 1, 2])


def test_items_are_cut_where_the_lengths_say():
    examples = Examples(TOKENS, LENGTHS, np.array([1, 0, 2]))
    assert [item["tokens"].tolist() for item in examples] == [[5, 6, 7], [8], [9, 4]]
    assert [int(item["label"]) for item in examples] == [1, 0, 2]
    assert examples[-1]["tokens"].tolist() == [9, 4]
    assert examples[0]["tokens"].dtype == examples[0]["label"].dtype == torch.int64
    assert examples.lengths.tolist() == [3, 1, 2]
    with pytest.raises(IndexError):
        examples[3]


def test_labels_for_every_token():
    examples = Examples(TOKENS, LENGTHS, np.array([6, 7, -100, -100, 4, -100]))
    assert [item["label"].tolist() for item in examples] == [[6, 7, -100], [-100], [4, -100]]


@pytest.mark.parametrize(
    "other",
    [
        (np.array([5, 6, 7, 8, 9, 3]), LENGTHS, np.array([1, 0, 2])),
        (TOKENS, np.array([2, 2, 2]), np.array([1, 0, 2])),
        (TOKENS, LENGTHS, np.array([1, 0, 3])),
    ],
)
def test_the_checksum_sees_tokens_borders_and_labels(other):
    one = Examples(TOKENS, LENGTHS, np.array([1, 0, 2]))
    assert checksum(one) == checksum(Examples(TOKENS, LENGTHS, np.array([1, 0, 2])))
    assert checksum(one) != checksum(Examples(*other))
    assert checksum(one, Examples(*other)) != checksum(Examples(*other), one)
