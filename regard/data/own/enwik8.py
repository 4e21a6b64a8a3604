"""enwik8 or text8 (Mahoney 2006): one file of 100 million bytes, the first 90 for training, 5 each for validation and test."""

from pathlib import Path

from regard.core import StoredDataError
from regard.data.own.format import Format, Parts, need

LAYOUT = "the file enwik8 or text8, unpacked: 100,000,000 bytes"
SIZE = 100_000_000


def read(path: Path) -> Parts:
    if need(path, LAYOUT).is_dir():
        raise StoredDataError(f"{path} is a folder. Expected: {LAYOUT}")
    if path.stat().st_size != SIZE:
        raise StoredDataError(f"{path} has {path.stat().st_size} bytes. Expected: {LAYOUT}")
    return split(path.read_bytes())


def split(text: bytes) -> Parts:
    """Nine tenths, and twice a twentieth, in this order."""
    first, second = len(text) * 90 // 100, len(text) * 95 // 100
    return {"train": text[:first], "valid": text[first:second], "test": text[second:]}


FORMAT = Format(
    name="enwik8",
    about="enwik8 or text8: Wikipedia as bytes, for bits per byte",
    layout=LAYOUT,
    read=read,
)
