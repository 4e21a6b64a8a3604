"""Descriptions of Debian packages as documents of sentences, with the archive section that each package stands in.

A document is the short line and the paragraphs below it. Documents with the same words are kept once. Binary packages of
one source repeat paragraphs: whoever splits them splits by `source`.
"""

import re
from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from regard.lab.data.archives import Archive
from regard.lab.data.descriptions import read_descriptions, read_packages
from regard.lab.data.labelled import first_of_each

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+(?=[\"'(]?[A-Z0-9])")
_SHORT_FORMS = ("e.g.", "i.e.", "etc.", "vs.", "cf.", "Inc.", "Dr.", "St.", "No.")


class Document(NamedTuple):
    package: str
    source: str
    section: str
    sentences: tuple[str, ...]


def read_documents(archive: Archive, *, min_count: int = 500) -> list[Document]:
    """One for each text, of the sections that have at least `min_count` packages; the order is that of the index."""
    packages = read_packages(archive.read("Packages").decode())
    sizes = Counter(listed.section for listed in packages.values())
    english = read_descriptions(archive.read("Translation-en").decode(), "en")
    documents = [
        Document(
            text.package, listed.source, listed.section, _sentences(text.short, text.paragraphs)
        )
        for text in english.values()
        if (listed := packages.get(text.package)) and sizes[listed.section] >= min_count
    ]
    return first_of_each(documents, key=lambda document: document.sentences)


def split_sentences(paragraph: str) -> list[str]:
    """Ends are marks before a space and a capital or digit; well-known short forms end nothing."""
    sentences: list[str] = []
    for piece in _SENTENCE_END.split(paragraph):
        if sentences and sentences[-1].endswith(_SHORT_FORMS):
            sentences[-1] += f" {piece}"
        else:
            sentences.append(piece)
    return [sentence for sentence in sentences if sentence]


def count_descriptions(archive: Archive) -> Mapping[str, int]:
    """Of the index with the English texts."""
    packages = read_packages(archive.read("Packages").decode())
    english = read_descriptions(archive.read("Translation-en").decode(), "en")
    sizes = Counter(listed.section for listed in packages.values())
    documents = read_documents(archive)
    return {
        "packages": len(packages),
        "descriptions": len(english),
        "sections": len(sizes),
        "sections of 500 packages": sum(size >= 500 for size in sizes.values()),
        "packages in these": sum(size for size in sizes.values() if size >= 500),
        "documents in these": len(documents),
        "sources of these": len({document.source for document in documents}),
        "documents of 3 sentences": sum(len(document.sentences) >= 3 for document in documents),
    }


def count_translations(archive: Archive) -> Mapping[str, int]:
    """Of the index of one other language."""
    (name,) = archive.names()
    language = name.removeprefix("Translation-")
    return {"descriptions": len(read_descriptions(archive.read(name).decode(), language))}


def _sentences(short: str, paragraphs: tuple[str, ...]) -> tuple[str, ...]:
    return (short, *(sentence for text in paragraphs for sentence in split_sentences(text)))
