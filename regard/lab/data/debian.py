"""Debian's package index: sections, sources, and descriptions in several languages (deb-src-control(5), RepositoryFormat).

A description is a short line, then paragraphs that a lone full stop divides. Translations are joined on the MD5 of the
English text, which every index carries: a translation of an older text is not taken for one of today's.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from regard.lab.data.splits import first_of_each, spaced


class Listed(NamedTuple):
    source: str  # the package that it is built from
    section: str


class Description(NamedTuple):
    package: str
    short: str
    paragraphs: tuple[str, ...]  # each in one line


Packages = dict[str, Listed]  # by name
Descriptions = dict[str, Description]  # by the MD5 of the English text


def read_descriptions(text: str, language: str) -> Descriptions:
    """MD5 of the English text -> the description in `language`; of packages that share a text the first is named."""
    found: Descriptions = {}
    field = f"Description-{language}"
    for stanza in _stanzas(text):
        if field in stanza:
            short, _, rest = stanza[field].partition("\n")
            parts = map(spaced, _FULL_STOP.split(rest))
            described = Description(stanza["Package"], short.strip(), tuple(filter(None, parts)))
            found.setdefault(stanza["Description-md5"], described)
    return found


def read_index(archive: Mapping[str, bytes]) -> tuple[Packages, Descriptions]:
    """Name of a binary package -> what `Packages` lists of it; and the descriptions of the English index."""
    listed: Packages = {}
    for stanza in _stanzas(archive["Packages"].decode()):
        source = stanza.get("Source", stanza["Package"]).split()[0]
        listed.setdefault(stanza["Package"], Listed(source, stanza.get("Section", "")))
    return listed, read_descriptions(archive["Translation-en"].decode(), "en")


def source_of(listed: Mapping[str, Listed], text: Description) -> str:
    return listed[text.package].source if text.package in listed else text.package


_FULL_STOP = re.compile(r"^\s*\.\s*$", re.MULTILINE)
_FIELD = re.compile(r"^([^\s:]+):[ \t]*(.*(?:\n[ \t].*)*)", re.MULTILINE)


def _stanzas(text: str) -> Iterator[dict[str, str]]:
    """The fields of each stanza, with their further lines; stanzas are divided by empty lines."""
    for stanza in text.split("\n\n"):
        if fields := dict(_FIELD.findall(stanza)):
            yield fields


_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z0-9])")
_SHORT_FORMS = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "Inc.", "Dr.", "St.", "No.")


class Document(NamedTuple):
    source: str
    section: str
    sentences: tuple[str, ...]


def read_documents(archive: Mapping[str, bytes], *, min_count: int = 500) -> list[Document]:
    """Descriptions of Debian packages as documents of sentences, with the archive section of each package.

    A document is the short line and the paragraphs below it. Documents with the same words are kept once. Binary packages of
    one source repeat paragraphs: whoever splits them splits by `source`.

    One for each text, of the sections that have at least `min_count` packages; the order is that of the index.
    """
    packages, english = read_index(archive)
    sizes = Counter(listed.section for listed in packages.values())
    documents = [
        Document(
            listed.source,
            listed.section,
            (text.short, *(one for part in text.paragraphs for one in split_sentences(part))),
        )
        for text in english.values()
        if (listed := packages.get(text.package)) and sizes[listed.section] >= min_count
    ]
    return first_of_each(documents, key=lambda document: document.sentences)


def split_sentences(paragraph: str) -> list[str]:
    """Ends are marks before a space and a capital or digit; well-known short forms end nothing."""
    sentences = list[str]()
    for piece in _SENTENCE_END.split(paragraph):
        if sentences and sentences[-1].endswith(_SHORT_FORMS):
            sentences[-1] += f" {piece}"
        else:
            sentences.append(piece)
    return sentences
