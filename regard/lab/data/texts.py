"""Reader of the SpamAssassin e-mails."""

import re
from collections.abc import Mapping
from typing import NamedTuple

_EMPTY_LINE = re.compile(rb"\r?\n\r?\n")


HARD = "hard-ham-1"
"""The folder of ham that looks like spam."""


class Email(NamedTuple):
    folder: str
    name: str
    body: bytes

    @property
    def spam(self) -> bool:
        return self.folder.startswith("spam")


def read_emails(archive: Mapping[str, bytes]) -> list[Email]:
    """The bodies of the SpamAssassin e-mails: headers name the receiving machine and the filter, and give the answer away.

    A body is what follows the first empty line (RFC 5322, section 2.1), byte for byte: parts of a multipart message keep
    their own headings and encodings.

    All of them, in the order of folders and names.
    """
    paths = [path.split("/") for path in archive if path.endswith(".txt")]
    return [
        Email(parts[2], parts[3], body_of(archive["/".join(parts)]))
        for parts in paths
        if parts[:2] == ["package", "data"]
    ]


def body_of(email: bytes) -> bytes:
    return (*_EMPTY_LINE.split(email, maxsplit=1), b"")[1]
