"""Pickles of plain values and numpy arrays, read without running anything that they name.

The instructions are listed first, and only those that build values are allowed: none can take more memory than the file
holds. Of names, only four are known, and stand for functions of this file.
"""

import pickle
import pickletools
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import IO, Any, cast

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.received import opened

LARGEST = 2**26  # bytes; a batch of CIFAR-10 has 31 million
_ALLOWED = frozenset(
    "PROTO FRAME STOP MARK NONE NEWTRUE NEWFALSE INT BININT BININT1 BININT2 LONG LONG1 FLOAT BINFLOAT "
    "STRING BINSTRING SHORT_BINSTRING BINBYTES SHORT_BINBYTES UNICODE BINUNICODE SHORT_BINUNICODE "
    "EMPTY_LIST LIST APPEND APPENDS EMPTY_TUPLE TUPLE TUPLE1 TUPLE2 TUPLE3 EMPTY_DICT DICT SETITEM SETITEMS "
    "PUT BINPUT LONG_BINPUT MEMOIZE GET BINGET LONG_BINGET GLOBAL STACK_GLOBAL REDUCE BUILD".split()
)
_PUTS = ("PUT", "BINPUT", "LONG_BINPUT")


def read_batch(path: Path) -> dict[Any, Any]:
    """The dict that is stored there. Raises StoredDataError."""
    try:
        with opened(path) as file, mmap(file.fileno(), 0, access=ACCESS_READ) as content:
            if len(content) > LARGEST:
                raise ValueError(f"it has more than {LARGEST:,} bytes")
            for number, (code, argument, _) in enumerate(
                pickletools.genops(cast(IO[bytes], content))
            ):
                if code.name not in _ALLOWED:
                    raise ValueError(f"its instruction {code.name} is not needed for values")
                if code.name in _PUTS and not 0 <= int(argument or 0) <= number:
                    raise ValueError(f"it stores value {argument} after {number} instructions")
            content.seek(0)
            found = _Values(content, encoding="bytes").load()
    except StoredDataError:
        raise
    except Exception as error:  # a damaged pickle may raise nearly anything
        raise StoredDataError(f"{path} is no batch of CIFAR-10: {error or repr(error)}") from None
    if not isinstance(found, dict):
        raise StoredDataError(f"{path} is no batch of CIFAR-10: it holds no dict")
    return {
        name: value.array(path) if isinstance(value, _Array) else value
        for name, value in found.items()
    }


class _Array:
    """A pickled array's state: version, shape, type, order, bytes."""

    def __setstate__(self, state: tuple) -> None:
        self.state = state

    def array(self, path: Path) -> NDArray[np.uint8]:
        try:
            _, shape, kind, by_columns, raw = self.state
            if not isinstance(kind, _Type) or kind.name not in ("u1", b"u1"):
                raise ValueError("it is not of bytes")
            found = np.frombuffer(raw, dtype=np.uint8)
            return found.reshape(shape, order="F" if by_columns else "C")
        except (AttributeError, TypeError, ValueError) as error:
            raise StoredDataError(f"{path} holds an array that cannot be read: {error}") from None


class _Type:
    def __init__(self, name: object, *_: object):
        self.name = name

    def __setstate__(self, state: tuple) -> None:
        """Byte order and alignment: bytes have none."""


def _reconstruct(*_: object) -> _Array:
    return _Array()


def _encode(text: str, *_: object) -> bytes:
    return text.encode("latin1")


_KNOWN = {"_reconstruct": _reconstruct, "ndarray": _Array, "dtype": _Type}


class _Values(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if module.split(".")[0] == "numpy" and name in _KNOWN:
            return _KNOWN[name]
        if (module, name) == ("_codecs", "encode"):
            return _encode
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no batch of CIFAR needs")
