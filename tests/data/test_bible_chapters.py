import pytest

from regard.core import StoredDataError
from regard.data.archives import Archive
from regard.data.bible_chapters import count_chapters, read_chapters, read_verse_numbers

SOURCE = '''
from somewhere import Bible, Version
bible = Bible(
    Version.TOY,
    """One verse. Two
verse. Three.""",
    {1001001: 0, 1001002: 11, 2003001: 22},
    {1001001: 10, 1001002: 21, 2003001: 28},
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


def test_verses_are_cut_from_the_text_and_joined_by_chapter():
    package = Package(SOURCE)
    assert read_verse_numbers(package) == {
        1001001: "One verse.",
        1001002: "Two verse.",
        2003001: "Three.",
    }
    assert read_chapters(package) == {(1, 1): "One verse.\nTwo verse.", (2, 3): "Three."}
    assert count_chapters(package)["verses"] == 3


@pytest.mark.parametrize(
    "source", ["bible = Bible(1, 2)", "x = 1", "bible = (", "bible = Bible(1, f(), {}, {})"]
)
def test_another_layout_is_named(source):
    with pytest.raises(StoredDataError, match="is no Bible as recorded"):
        read_chapters(Package(source))
