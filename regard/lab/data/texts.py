"""Readers of labelled texts: e-mails of SpamAssassin, posts of 20 Newsgroups."""

import re
from collections.abc import Mapping
from typing import Literal, NamedTuple

from regard.core import StoredDataError
from regard.lab.data.archives import Archive
from regard.lab.data.labelled import Texts, label
from regard.lab.data.splits import apart, first_of_each, spaced

_EMPTY_LINE = re.compile(rb"\r?\n\r?\n")


HARD = "hard-ham-1"
"""The folder of ham that looks like spam; kept apart as a test of its own."""


class Email(NamedTuple):
    folder: str
    name: str
    body: bytes

    @property
    def spam(self) -> bool:
        return self.folder.startswith("spam")


def read_emails(archive: Archive) -> list[Email]:
    """The bodies of the SpamAssassin e-mails: headers name the receiving machine and the filter, and give the answer away.

    A body is what follows the first empty line (RFC 5322, section 2.1), byte for byte: parts of a multipart message keep
    their own headings and encodings.

    All of them, in the order of folders and names.
    """
    found = []
    for path in archive.names():
        parts = path.split("/")
        if parts[:2] == ["package", "data"] and path.endswith(".txt"):
            found.append(Email(parts[2], parts[3], body_of(archive.read(path))))
    return found


def body_of(email: bytes) -> bytes:
    return (*_EMPTY_LINE.split(email, maxsplit=1), b"")[1]


def unique_emails(emails: list[Email]) -> list[Email]:
    """The first of each body, compared without white space; empty bodies are left out."""
    return first_of_each(
        (email for email in emails if email.body.strip()), key=lambda email: spaced(email.body)
    )


def count_emails(archive: Archive) -> Mapping[str, int]:
    emails = read_emails(archive)
    kept = unique_emails(emails)
    return {
        "emails": len(emails),
        "spam": sum(email.spam for email in emails),
        "hard ham": sum(email.folder == HARD for email in emails),
        "unique bodies": len(kept),
        "spam among these": sum(email.spam for email in kept),
    }


_HEAD_LINES = 3


def read_newsgroups(archive: Archive, part: Literal["train", "test"]) -> Texts:
    """20 Newsgroups in Orange's table: `class <tab> text` a line, below three lines of head.

    The posts were cleaned by whoever made the table: lower-case letters and single spaces, no sentence ends. What is left of
    addresses and organisations is still in the text, which makes it easier than the raw posts.

    Every post, also the empty and the repeated ones. Raises StoredDataError for a line without a tab.
    """
    table = archive.read(f"orangecontrib/text/datasets/20newsgroups-{part}.tab")
    texts, names = [], []
    for number, line in enumerate(table.split(b"\n")):
        if number < _HEAD_LINES or not line.strip():
            continue
        name, tab, text = line.rstrip(b"\r").partition(b"\t")
        if not tab:
            raise StoredDataError(f"20newsgroups-{part}.tab: line {number + 1} has no tab")
        texts.append(text)
        names.append(name.decode())
    return label(texts, names)


def unique_newsgroups(archive: Archive) -> dict[str, Texts]:
    """Train and test without repetitions; a text of both stays in train. Texts under 20 letters are left out."""
    parts = {part: read_newsgroups(archive, part) for part in ("train", "test")}
    posts = [
        [
            (text, found.classes[number])
            for text, number in zip(found.texts, found.labels, strict=True)
            if len(text) >= 20
        ]
        for found in parts.values()
    ]
    kept = apart(posts, key=lambda post: spaced(post[0]))
    return {
        part: label([text for text, _ in of], [name for _, name in of], parts["train"].classes)
        for part, of in zip(parts, kept, strict=True)
    }


def count_newsgroups(archive: Archive) -> Mapping[str, int]:
    train, test = read_newsgroups(archive, "train"), read_newsgroups(archive, "test")
    kept = unique_newsgroups(archive)
    return {
        "train": len(train.texts),
        "test": len(test.texts),
        "classes": len(train.classes),
        "unique train": len(kept["train"].texts),
        "unique test": len(kept["test"].texts),
    }
