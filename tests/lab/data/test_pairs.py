"""Pairs of texts, and the split that a name decides."""

import pytest

from regard.lab.data.pairs import Pair, split_pairs
from regard.lab.data.splits import split_of


def test_a_source_counts_once_whatever_its_case_and_spacing():
    pairs = [Pair("Open  file", "a", "x"), Pair("open file", "b", "x"), Pair("Open", "c", "x")]
    assert split_pairs(pairs)[split_of("x")] == [pairs[0], pairs[2]]


def test_groups_stay_whole_and_shares_are_eight_one_one():
    parts = split_pairs(Pair(f"{i} {j}", "t", f"group {i}") for i in range(2000) for j in range(3))
    groups = {name: {pair.group for pair in part} for name, part in parts.items()}
    assert sum(map(len, parts.values())) == 6000 and sum(map(len, groups.values())) == 2000
    for name, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert len(groups[name]) == pytest.approx(2000 * share, rel=0.2)
