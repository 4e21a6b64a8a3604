import zlib
from struct import pack

import pytest

from regard.core import StoredDataError
from regard.lab.data.archives import open_archive
from regard.lab.data.bibles import plain, read_verses, verse_pairs
from regard.lab.data.pairs import Pair

OLD = [
    "",
    '<milestone type="x-importer"/>',
    '<div osisID="Gen" sID="g1" type="book"/> <title>Genesis</title>',
    '<chapter n="1" osisID="Gen.1" sID="Gen.1"/>',
    '<w lemma="strong:H1">In</w> the beginning, <note n="a">or: At first</note>God<note>x</note>created &amp; saw .',
    "",
    '<verse>And it was</verse> evening.<chapter eID="Gen.1" osisID="Gen.1"/>',
    '<div sID="g2"/><chapter n="2" osisID="Gen.2" sID="Gen.2"/>',
    "The second chapter.",
    '<div canonical="true" osisID="Exod" sID="g3" type="book"/><title>Exodus</title>',
    "No verse: its chapter has not begun.",
]
NEW = ['<chapter n="1" osisID="Matt.1" sID="Matt.1"/>', "The book."]


def write(folder, entries_of):
    for name, entries in entries_of.items():
        blocks = [entries[:4], entries[4:]]
        packed, index, verses = b"", b"", b""
        for number, block in enumerate(blocks):
            content, start = "".join(block).encode(), 0
            squeezed = zlib.compress(content)
            index += pack("<III", len(packed), len(squeezed), len(content))
            packed += squeezed
            for entry in block:
                size = len(entry.encode())
                verses += pack("<IIH", number, start, size)
                start += size
        for ending, content in ((".bzz", packed), (".bzs", index), (".bzv", verses)):
            (folder / f"{name}{ending}").write_bytes(content)
    return open_archive(folder)


def test_verses_are_counted_from_their_chapter(tmp_path):
    assert read_verses(write(tmp_path, {"ot": OLD, "nt": NEW})) == {
        "Gen.1.1": "In the beginning, God created & saw.",
        "Gen.1.3": "And it was evening.",
        "Gen.2.1": "The second chapter.",
        "Matt.1.1": "The book.",
    }


def test_notes_do_not_glue_words():
    assert (
        plain("God<note>that is <w>He</w></note>created<milestone/> the<br/> sky")
        == "God created the sky"
    )


def test_pairs_have_the_chapter_as_group():
    ours, theirs = {"Gen.1.1": "a", "Gen.1.2": "b"}, {"Gen.1.2": "c", "Gen.1.3": "d"}
    assert verse_pairs(ours, theirs) == [Pair("b", "c", "Gen.1")]


def test_an_archive_without_a_module_is_refused(tmp_path):
    with pytest.raises(StoredDataError, match="no compressed SWORD module"):
        read_verses(open_archive(tmp_path))
