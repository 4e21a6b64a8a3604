"""Readers of labelled texts."""

import numpy as np
import pytest

from regard.core import StoredDataError
from regard.lab.data.archives import Archive
from regard.lab.data.texts import Email, body_of, read_newsgroups, unique_emails, unique_newsgroups


def test_a_body_begins_after_the_first_empty_line_and_keeps_its_bytes():
    assert body_of(b"Subject: x\nTo: y\n\nfirst\n\nsecond \xff\n") == b"first\n\nsecond \xff\n"
    assert body_of(b"Subject: x\r\n\r\nfirst\r\n") == b"first\r\n"
    assert body_of(b"Subject: only a head\n") == b""


def test_bodies_that_differ_in_spacing_are_kept_once():
    emails = [
        Email("spam-1", "a", b"buy  now"),
        Email("spam-2", "b", b"buy\nnow\n"),
        Email("easy-ham-1", "c", b" \n"),
        Email("easy-ham-1", "d", b"hello"),
    ]
    assert [email.name for email in unique_emails(emails)] == ["a", "d"]
    assert [email.spam for email in unique_emails(emails)] == [True, False]


HEAD = b"Category\tText\nd\tstring\nclass\t\n"


LONG = b"a post of more than twenty letters"


class Tables(Archive):
    label = "tables"

    def __init__(self, **parts: bytes):
        self._parts = {
            f"orangecontrib/text/datasets/20newsgroups-{part}.tab": HEAD + rows
            for part, rows in parts.items()
        }

    def names(self):
        return list(self._parts)

    def _content(self, name):
        return self._parts[name]


def test_the_head_and_empty_rows_are_no_posts():
    found = read_newsgroups(Tables(train=b"\nsci.med\tone two\n\nalt.x\tthree\n"), "train")
    assert found.texts == [b"one two", b"three"]
    assert found.classes == ("alt.x", "sci.med")
    assert np.array_equal(found.labels, [1, 0])


def test_a_post_of_both_parts_stays_in_train():
    rows = b"sci.med\t" + LONG + b"\n"
    other = b"alt.x\tanother post that is long enough\n"
    parts = unique_newsgroups(
        Tables(train=rows + other + rows, test=rows + b"alt.x\tshort\nalt.x\t" + LONG + b" too\n")
    )
    assert parts["train"].texts == [LONG, b"another post that is long enough"]
    assert parts["test"].texts == [LONG + b" too"]
    assert parts["test"].classes == parts["train"].classes


def test_a_line_without_a_tab_is_named():
    with pytest.raises(StoredDataError, match=r"20newsgroups-train\.tab: line 4 has no tab"):
        read_newsgroups(Tables(train=b"sci.med one two\n"), "train")
