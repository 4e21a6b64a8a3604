"""Readers of labelled texts: e-mails of SpamAssassin, posts of 20 Newsgroups."""

import re
from typing import NamedTuple

from regard.lab.data.archives import Archive
from regard.lab.data.splits import first_of_each, spaced

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
