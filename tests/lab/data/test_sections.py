from regard.lab.data.archives import Archive
from regard.lab.data.debian import Document, count_descriptions, read_documents, split_sentences

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


class Index(Archive):
    label = "index"

    def names(self):
        return list(FILES)

    def _content(self, name):
        return FILES[name]


def test_large_sections_give_documents_of_sentences_and_repeated_texts_one():
    sentences = (
        "reads files",
        "It reads files, e.g. Text files.",
        "Quickly!",
        "(Often.) It is small.",
        "Version 2 is planned.",
    )
    assert read_documents(Index(), min_count=2) == [Document("liba1", "a", "libs", sentences)]
    assert len(read_documents(Index(), min_count=1)) == 2


def test_counts_know_that_no_section_is_large_here():
    counted = count_descriptions(Index())
    assert (counted["packages"], counted["descriptions"], counted["sections"]) == (3, 3, 2)
    assert counted["sections of 500 packages"] == counted["documents in these"] == 0


def test_versions_and_short_forms_end_no_sentence():
    assert split_sentences("Since 2.0 it reads i.e. XML. Now faster.") == [
        "Since 2.0 it reads i.e. XML.",
        "Now faster.",
    ]
