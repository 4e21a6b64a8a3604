"""Files that somebody else wrote: read from inside their folder, within bounds, and every fault named with its place."""

import gzip
import zlib
from collections.abc import Iterator, Sequence
from io import BytesIO
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import IO, Any

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.files import reported

MOST_BYTES = 4 * 2**30  # of a file that is read whole, packed or not
MOST_INFLATION = (
    100  # unpacked bytes for each packed one, above ALWAYS bytes; real data stay far below
)
ALWAYS = 2**20
LONGEST_LINE = 2**24  # bytes
MOST_CLASSES = 10_000


def inside(folder: Path, name: str, layout: str) -> Path:
    """The file or folder `name` under `folder`. Raises StoredDataError where the name, or a symbolic link, leads out of it."""
    pure = (PurePosixPath(name), PureWindowsPath(name))
    if "\0" in name or any(p.is_absolute() or p.drive or ".." in p.parts for p in pure):
        raise StoredDataError(
            f"{folder} names {name!r}, which is not inside it. Expected: {layout}"
        )
    with reported(folder / name[:99], "read"):
        path = need(folder / name, layout)
        real = path.resolve()
    if not real.is_relative_to(folder.resolve()):
        raise StoredDataError(
            f"{path} is a link to {real}, outside {folder}. Put the file itself there."
        )
    return path


def read_whole(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file. Raises StoredDataError for a device, a pipe, or more than `most` bytes."""
    with opened(path) as file:
        if (size := path.stat().st_size) > most:
            raise StoredDataError(f"{path} has {size:,} bytes, and at most {most:,} were expected")
        return file.read()


def opened(path: Path) -> IO[bytes]:
    with reported(path, "read"):
        if not path.is_file():
            raise StoredDataError(f"{path} is no regular file")
        return path.open("rb")


def text_of(path: Path) -> str:
    """The whole file. Raises StoredDataError, with the line, where it is not UTF-8."""
    content = read_whole(path)
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise StoredDataError(f"{path}, line {line}: not UTF-8 ({error.reason})") from None


def lines_of(path: Path) -> Iterator[tuple[int, str]]:
    """Numbered lines of a text file, or of a packed one (.gz), without their ends. Raises StoredDataError with the line."""
    with opened(path) as raw:
        packed = path.suffix == ".gz"
        file: Any = gzip.GzipFile(fileobj=raw) if packed else raw
        room = ALWAYS + MOST_INFLATION * path.stat().st_size
        number = 1
        while True:
            try:
                line = file.readline(LONGEST_LINE + 1)
                room -= len(line)
                text = line.decode().removesuffix("\n").removesuffix("\r")
            except UnicodeDecodeError as error:
                raise StoredDataError(
                    f"{path}, line {number}: not UTF-8 ({error.reason})"
                ) from None
            except (EOFError, OSError, zlib.error) as error:
                raise StoredDataError(
                    f"{path}, line {number}: cannot be unpacked: {error}"
                ) from None
            if len(line) > LONGEST_LINE:
                raise StoredDataError(
                    f"{path}, line {number}: longer than {LONGEST_LINE:,} bytes, which no such file is"
                )
            if packed and room < 0:
                raise StoredDataError(
                    f"{path}, line {number}: unpacks to more than {MOST_INFLATION} times its size"
                )
            if not line:
                return
            yield number, text
            number += 1


def unpacked(content: bytes, name: str, size: int) -> bytes:
    """At most `size` bytes of what gzip packed. Raises StoredDataError."""
    with gzip.GzipFile(fileobj=BytesIO(content)) as file:
        try:
            return file.read(size)
        except (EOFError, OSError, zlib.error) as error:
            raise StoredDataError(f"{name} cannot be unpacked: {error}") from None


def check_inflation(name: str, packed: int, size: int) -> None:
    if size > min(MOST_BYTES, ALWAYS + MOST_INFLATION * packed):
        raise StoredDataError(
            f"{name} would unpack from {packed:,} to {size:,} bytes: more than {MOST_INFLATION} times"
        )


def check_labels(name: str, labels: Sequence[Any] | NDArray[Any], classes: int) -> NDArray[Any]:
    """Labels as whole numbers. Raises StoredDataError for none, and for one that is not from 0 to classes - 1."""
    if len(labels) == 0:
        raise StoredDataError(f"{name} is empty: it holds no item")
    if classes > MOST_CLASSES:
        raise StoredDataError(
            f"{name} has {classes:,} classes, and at most {MOST_CLASSES:,} are read"
        )
    if isinstance(labels, np.ndarray) and labels.dtype.kind in "iu":
        wrong = np.flatnonzero((labels < 0) | (labels >= classes)).tolist()
    else:
        fits = [type(value) is int and 0 <= value < classes for value in labels]
        wrong = [] if all(fits) else [fits.index(False)]
    if wrong:
        value = labels[wrong[0]]
        said = repr(value.item() if isinstance(value, np.generic) else value)[:60]
        raise StoredDataError(
            f"{name}, item {wrong[0]}: label {said} is not a whole number from 0 to {classes - 1}"
        )
    return np.array(labels, dtype=np.int64)
