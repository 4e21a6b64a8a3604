"""Readers of Debian's package index."""

from regard.lab.data.debian import (
    Document,
    read_descriptions,
    read_documents,
    read_packages,
    split_sentences,
    summaries,
    translations,
)
from regard.lab.data.pairs import Pair
from tests.lab.data.sources.packages import Files

PACKAGES = """Package: tea
Version: 1.0
Depends: libc6 (>= 2.34),
 libtea1
Section: misc

Package: tea-doc
Source: tea (1.0-2)
Section: doc

Package: tea
Source: other
Section: oldlibs
"""


ENGLISH = """Package: tea
Description-md5: aa
Description-en: brews tea
 Tea is brewed by
 this program.
 .
 It has:
  * a pot
  * a cup

Package: tea-doc
Description-md5: bb
Description-en: brews tea (documentation)
 Tea is explained.

Package: libtea
Description-md5: aa
Description-en: a text that is shared

Package: lost
Description-md5: cc
Description-en: short alone
"""


GERMAN = """Package: tea
Description-md5: aa
Description-de: kocht Tee
 Dieses Programm kocht Tee.
 .
 Es hat:
  * eine Kanne
  * eine Tasse

Package: tea-doc
Description-md5: bb
Description-de: kocht Tee (Dokumentation)
 Tee wird erklärt.
 .
 Mehr als im Englischen.

Package: gone
Description-md5: old
Description-de: einer älteren Fassung
"""


def read():
    return (
        read_packages(PACKAGES),
        read_descriptions(ENGLISH, "en"),
        read_descriptions(GERMAN, "de"),
    )


def test_sources_and_sections_of_packages():
    listed, _, _ = read()
    assert listed == {"tea": ("tea", "misc"), "tea-doc": ("tea", "doc")}


def test_descriptions_by_md5():
    _, english, _ = read()
    assert set(english) == {"aa", "bb", "cc"}
    assert english["aa"] == (
        "tea",
        "aa",
        "brews tea",
        ("Tea is brewed by this program.", "It has: * a pot * a cup"),
    )
    assert english["cc"].paragraphs == ()


def test_translations_pair_paragraphs_where_there_are_equally_many():
    assert translations(*read()) == [
        Pair("brews tea", "kocht Tee", "tea"),
        Pair("Tea is brewed by this program.", "Dieses Programm kocht Tee.", "tea"),
        Pair("It has: * a pot * a cup", "Es hat: * eine Kanne * eine Tasse", "tea"),
        Pair("brews tea (documentation)", "kocht Tee (Dokumentation)", "tea"),
    ]


def test_summaries_are_grouped_by_source():
    listed, english, _ = read()
    assert summaries(listed, english) == [
        Pair("Tea is brewed by this program.\nIt has: * a pot * a cup", "brews tea", "tea"),
        Pair("Tea is explained.", "brews tea (documentation)", "tea"),
    ]


FILES = {
    "Packages": b"""Package: liba1
Source: a (1.2)
Section: libs
Description-md5: 11

Package: a-dev
Section: devel
Description-md5: 22

Package: liba2
Source: a
Section: libs
Description-md5: 33
""",
    "Translation-en": b"""Package: liba1
Description-md5: 11
Description-en: reads files
 It reads files, e.g. Text files. Quickly! (Often.) It
 is small.
 .
 Version 2 is planned.

Package: a-dev
Description-md5: 22
Description-en: headers
 Of a.

Package: liba2
Description-md5: 33
Description-en: reads files
 It reads files, e.g. Text files. Quickly! (Often.) It is small.
 .
 Version 2 is planned.
""",
}


def test_large_sections_give_documents_of_sentences_and_repeated_texts_one():
    sentences = (
        "reads files",
        "It reads files, e.g. Text files.",
        "Quickly!",
        "(Often.) It is small.",
        "Version 2 is planned.",
    )
    assert read_documents(Files(FILES), min_count=2) == [Document("liba1", "a", "libs", sentences)]
    assert len(read_documents(Files(FILES), min_count=1)) == 2


def test_versions_and_short_forms_end_no_sentence():
    assert split_sentences("Since 2.0 it reads i.e. XML. Now faster.") == [
        "Since 2.0 it reads i.e. XML.",
        "Now faster.",
    ]
