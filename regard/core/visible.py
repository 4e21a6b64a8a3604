"""Text from elsewhere, made safe to print."""


def visible(text: str) -> str:
    """The text with every character that a terminal obeys, or that a reader cannot see, written as its escape.

    >>> visible("soft\\x1b[2Jmax")
    'soft\\\\x1b[2Jmax'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def visible_lines(text: str) -> str:
    """The same, with line breaks kept."""
    return "\n".join(map(visible, text.split("\n")))
