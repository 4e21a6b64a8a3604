import pytest

from regard.core import MissingDataError, StoredDataError
from regard.lab.data.own import read_parallel
from regard.lab.data.pairs import Pair, split_pairs, unique


def test_a_source_counts_once_whatever_its_case_and_spacing():
    pairs = [Pair("Open  file", "a", "x"), Pair("open file", "b", "y"), Pair("Open", "c", "x")]
    assert unique(pairs) == [pairs[0], pairs[2]]


def test_groups_stay_whole_and_shares_are_eight_one_one():
    pairs = [Pair(f"{i} {j}", "t", f"group {i}") for i in range(2000) for j in range(3)]
    parts = split_pairs(pairs)
    groups = {name: {pair.group for pair in part} for name, part in parts.items()}
    assert sum(map(len, parts.values())) == 6000
    assert not groups["train"] & groups["test"] and not groups["train"] & groups["valid"]
    assert not groups["valid"] & groups["test"]
    for name, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert len(groups[name]) == pytest.approx(2000 * share, rel=0.2)


def test_two_files_are_read_line_by_line(tmp_path):
    one, two = tmp_path / "news.en", tmp_path / "news.de"
    one.write_text("A house .\n\nIt  rains\u2028today .\n", encoding="utf-8")
    two.write_text("Ein Haus .\nleer\nEs regnet .\n", encoding="utf-8")
    assert read_parallel(one, two) == [
        ("A house .", "Ein Haus ."),
        ("It rains today .", "Es regnet ."),
    ]


def test_files_that_are_not_parallel_are_refused(tmp_path):
    one, two = tmp_path / "a", tmp_path / "b"
    one.write_text("1\n2\n3\n")
    with pytest.raises(MissingDataError, match=r"there is no .*b\. Expected: a text file"):
        read_parallel(one, two)
    two.write_text("1\n2\n")
    with pytest.raises(StoredDataError, match=r"b ends after 2 lines, and .*a goes on"):
        read_parallel(one, two)
    two.write_bytes(b"\xff\n2\n3\n")
    with pytest.raises(StoredDataError, match=r"b, line 1: not UTF-8"):
        read_parallel(one, two)
