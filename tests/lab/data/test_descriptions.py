from regard.lab.data.debian import read_descriptions, read_packages, summaries, translations
from regard.lab.data.pairs import Pair

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
