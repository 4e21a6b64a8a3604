"""text8 (Mahoney 2006): 100 million letters and spaces of Wikipedia, cut as enwik8 is."""

from pathlib import Path

from regard.core import StoredDataError
from regard.lab.data.own.enwik8 import split, whole
from regard.lab.data.own.format import Format, Parts

LAYOUT = "the file text8, unpacked: 100,000,000 bytes, a to z and spaces only"
_LETTERS = b" abcdefghijklmnopqrstuvwxyz"


def read(path: Path) -> Parts:
    text = whole(path, LAYOUT)
    if other := text.translate(None, _LETTERS):
        raise StoredDataError(f"{path} holds {other[:10]!r}. Expected: {LAYOUT}")
    return split(text)


FORMAT = Format(
    name="text8",
    about="text8: Wikipedia in lower-case letters, for bits per letter",
    layout=LAYOUT,
    read=read,
)
