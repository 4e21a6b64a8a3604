"""Readers of Bibles, package indices, plays and Python source, on a few lines written here."""

import pytest

from regard.core import OptionError
from regard.lab.data.bibles import read_chapters
from regard.lab.data.debian import Document, read_documents, split_sentences
from regard.lab.tasks.language_models import read_modules
from regard.lab.tasks.pairs import Turn, read_turns
from tests.registry import packed

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


GREEK_WORDS = """\
id\taltId\ttext
n40001001001\ta\tΒίβλος
n40001001002\tb\tγενέσεως
n40001002001\tc\t"Ἀβραὰμ
n40002001001\td\tΤοῦ"""
TARGET = """\
id\tsource_verse\ttext\texclude
40001001001\t40001001\tThe\t
40001001002\t40001001\tbook\t
40001001003\t40001001\t,\ty
40001001004\t40001001\tof\t
40001002001\t40001002\tAbraham\t
40002001001\t40002001\tunlinked\t"""
RECORDS = {
    "records": [
        {"source": ["n40001001001"], "target": ["40001001001", "40001001002"]},
        {"source": ["n40001001002", "n40001001001"], "target": ["40001001004", "40001001003"]},
        {"source": ["n40001002001"], "target": ["40001002001", "40001001001"]},
    ]
}


def index(*packages):
    """Paragraphs of an index of packages, from their fields; a text goes on in indented lines."""
    return "\n".join("".join(f"{n}: {text}\n" for n, text in of.items()) for of in packages)


def translated(language, **packages):
    """Package -> the checksum of its text, and the text."""
    return index(
        *({"Package": name.replace("_", "-"), "Description-md5": checksum, f"Description-{language}": text}
          for name, (checksum, text) in packages.items())
    )  # fmt: skip


PACKAGES = index(
    {
        "Package": "tea",
        "Version": "1.0",
        "Depends": "libc6 (>= 2.34),\n libtea1",
        "Section": "misc",
    },
    {"Package": "tea-doc", "Source": "tea (1.0-2)", "Section": "doc"},
    {"Package": "tea", "Source": "other", "Section": "oldlibs"},
)
TEA = "brews tea\n Tea is brewed by\n this program.\n .\n It has:\n  * a pot\n  * a cup"
TEE = "kocht Tee\n Dieses Programm kocht Tee.\n .\n Es hat:\n  * eine Kanne\n  * eine Tasse"
ENGLISH = translated(
    "en",
    tea=("aa", TEA),
    tea_doc=("bb", "brews tea (documentation)\n Tea is explained."),
    libtea=("aa", "a text that is shared"),
    lost=("cc", "short alone"),
)
GERMAN = translated(
    "de",
    tea=("aa", TEE),
    tea_doc=("bb", "kocht Tee (Dokumentation)\n Tee wird erklärt.\n .\n Mehr als im Englischen."),
    gone=("old", "einer älteren Fassung"),
)


def test_large_sections_give_documents_of_sentences_and_repeated_texts_one():
    again = translated("en", tea_two=("dd", "brews tea (documentation)\n Tea is explained."))
    more = index({"Package": "tea-two", "Source": "tea", "Section": "doc"})
    files = packed({"Packages": f"{PACKAGES}\n{more}", "Translation-en": f"{ENGLISH}\n{again}"})
    doc = Document("tea", "doc", ("brews tea (documentation)", "Tea is explained."))
    assert read_documents(files, min_count=2) == [doc]
    tea = ("brews tea", "Tea is brewed by this program.", "It has: * a pot * a cup")
    assert read_documents(files, min_count=1) == [Document("tea", "misc", tea), doc]
    ends = ["It reads files, e.g. Text files.", "Quickly!", "(Often.) Since 2.0 it is i.e. small.", "Now faster."]  # fmt: skip
    assert split_sentences(" ".join(ends)) == ends


PLAY = """THE PLAY

DUNCAN, King of Scotland.
MALCOLM, his Son.

ACT I.

SCENE I. A heath.

[Enter MACBETH and
Kent.]

MACBETH.
So foul and fair a day
I have not seen.

[Aside.]

It goes on here.

Kent. [To MACBETH.]
My lord.

SCENE II.

OFFICER. Good sir,
be patient.

OBERON
What hast thou done?

If we offend.

EPILOGUE.

I'll drown my book.
"""


def test_turns_of_all_layouts_are_read():
    assert read_turns(PLAY) == [
        Turn(2, "MACBETH", "So foul and fair a day\nI have not seen.\nIt goes on here."),
        Turn(2, "KENT", "My lord."),
        Turn(3, "OFFICER", "Good sir,\nbe patient."),
        Turn(3, "OBERON", "What hast thou done?\nIf we offend."),
    ]


LIBRARY = {"a.py": "x = 1\n", "copy_of_a.py": "x = 1\n", "pack/b.py": "y = 2\n", "empty.py": "\n"}
LEFT_OUT = ("pack/tests/c.py", "site-packages/d.py", "_sysconfigdata__linux.py", "config-3.11/e.py")
LIBRARY |= {name: f"z = {name!r}\n" for name in (*LEFT_OUT, "notes.txt")}


def test_modules_are_read_once_and_tests_and_what_is_generated_left_out(tmp_path):
    with pytest.raises(OptionError, match=f"no Python source under {tmp_path}"):
        read_modules(tmp_path)
    for name, text in LIBRARY.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_modules(tmp_path) == {"a.py": b"x = 1\n", "pack/b.py": b"y = 2\n"}
