"""Readers of Debian's package index."""

from regard.lab.data.debian import Document, read_documents, split_sentences

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


FILES = {
    "Packages": b"""Package: liba1
Source: a (1.2)
Section: libs

Package: a-dev
Section: devel

Package: liba2
Source: a
Section: libs
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
    assert read_documents(FILES, min_count=2) == [Document("a", "libs", sentences)]
    assert len(read_documents(FILES, min_count=1)) == 2
    one = "Since 2.0 it reads i.e. XML."
    assert split_sentences(f"{one} Now faster.") == [one, "Now faster."]
