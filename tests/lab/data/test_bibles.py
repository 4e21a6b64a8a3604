"""Readers of Bibles."""

from regard.lab.data.bibles import read_chapters
from tests.lab.data.sources.packages import packed

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


def bible(source):
    return packed({"toy/html_bible.py": source, "toy/plain_text_readers_bible.py": source})


def test_chapters_are_cut_at_the_numbers_in_the_text_and_split_ones_joined():
    assert read_chapters(bible(SOURCE)) == {
        (1, 1): "One verse.\nTwo verse.",
        (1, 2): "Three.\nfour.\nFive.",
        (2, 1): "Six.",
    }


GREEK_WORDS = "\n".join(
    [
        "id\taltId\ttext",
        "n40001001001\ta\tΒίβλος",
        "n40001001002\tb\tγενέσεως",
        'n40001002001\tc\t"Ἀβραὰμ',
        "n40002001001\td\tΤοῦ",
    ]
)


TARGET = "\n".join(
    [
        "id\tsource_verse\ttext\texclude",
        "40001001001\t40001001\tThe\t",
        "40001001002\t40001001\tbook\t",
        "40001001003\t40001001\t,\ty",
        "40001001004\t40001001\tof\t",
        "40001002001\t40001002\tAbraham\t",
        "40002001001\t40002001\tunlinked\t",
    ]
)


RECORDS = {
    "records": [
        {"source": ["n40001001001"], "target": ["40001001001", "40001001002"]},
        {"source": ["n40001001002", "n40001001001"], "target": ["40001001004", "40001001003"]},
        {"source": ["n40001002001"], "target": ["40001002001", "40001001001"]},
    ]
}
