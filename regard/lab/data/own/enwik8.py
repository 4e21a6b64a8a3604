"""enwik8 (Mahoney 2006): one file of 100 million bytes, the first 90 for training, 5 each for validation and test."""

from pathlib import Path

from regard.core import StoredDataError
from regard.lab.data.checks import need_file
from regard.lab.data.own.format import Format, Parts

LAYOUT = "the file enwik8, unpacked: 100,000,000 bytes that begin with <mediawiki"
SIZE = 100_000_000


def read(path: Path) -> Parts:
    text = whole(path, LAYOUT)
    if not text.startswith(b"<mediawiki"):
        raise StoredDataError(f"{path} begins with {text[:10]!r}. Expected: {LAYOUT}")
    return split(text)


def whole(path: Path, layout: str) -> bytes:
    """A file of SIZE bytes."""
    if need_file(path, layout).stat().st_size != SIZE:
        raise StoredDataError(f"{path} has {path.stat().st_size} bytes. Expected: {layout}")
    return path.read_bytes()


def split(text: bytes) -> Parts:
    """Nine tenths, and twice a twentieth, in this order."""
    first, second = len(text) * 90 // 100, len(text) * 95 // 100
    return {"train": text[:first], "valid": text[first:second], "test": text[second:]}


FORMAT = Format(
    name="enwik8",
    about="enwik8: Wikipedia as bytes, for bits per byte",
    layout=LAYOUT,
    read=read,
)
