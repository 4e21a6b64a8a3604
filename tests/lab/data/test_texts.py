"""Readers of labelled texts."""

from regard.lab.data.texts import Email, body_of, unique_emails


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
