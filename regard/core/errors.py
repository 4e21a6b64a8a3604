"""Errors for requests that cannot be served: who, what, why, and what instead."""

import reprlib
import signal
import sysconfig
import threading
import traceback
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path

import torch
from torch import Tensor

LIMIT = 300
"""Seconds that code of others may take for an import, a constructor or a law."""

_PACKAGES = tuple({str(Path(__file__).parents[1]), *sysconfig.get_paths().values()})


class RegardError(ValueError):
    """Base of every error that a user's input can cause."""


class UnsupportedError(RegardError):
    """A request for something that the mechanism declares it cannot do."""


class ShapeError(RegardError):
    """A tensor, length or size does not fit."""


class OptionError(RegardError):
    """An option has a value that cannot be used."""


class UnknownNameError(RegardError, KeyError):
    """A name is not in its catalogue; a KeyError too, because catalogues are mappings."""

    __str__ = Exception.__str__  # a KeyError's would quote the text

    def __init__(self, kind: str, name: object, known: Iterable[str]):
        known = list(known)
        names = ", ".join(known) or "none"
        hint = suggestion(name, known, otherwise=f"Known: {names}.")
        super().__init__(f"unknown {kind} {shown(name)}. {hint}")


class StoredDataError(RegardError):
    """A file that was written earlier (checkpoint, ledger, cache) is truncated or altered."""


class PathError(RegardError):
    """A path cannot be read or written: no permission, a full disk, a file in the place of a folder."""


class MissingDataError(RegardError):
    """Data that is not on this machine and cannot be fetched as requested; the text says how to get it."""


def blamed(error: BaseException) -> str:
    """`ValueError in mine.py, line 7: no`: the innermost line that belongs to no package; empty where there is none."""
    places = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    places = [place for place in places if not place[0].startswith(("<", *_PACKAGES))]
    said = "which has no text"
    with suppress(Exception):  # its own __str__ may be broken
        said = str(getattr(error, "msg", error)).partition("\n")[0]
    return (
        f"{type(error).__name__} in {places[-1][0]}, line {places[-1][1]}: {said}" if places else ""
    )


@contextmanager
def limited() -> Iterator[None]:
    """TimeoutError after LIMIT seconds, in the main thread of a Unix process, where a signal can bring it."""
    able = hasattr(signal, "SIGALRM") and threading.current_thread() is threading.main_thread()
    if not able or signal.getitimer(signal.ITIMER_REAL)[0]:  # an outer limit holds
        yield
        return

    def late(*_: object) -> None:
        raise TimeoutError(f"it had not ended after {LIMIT} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, LIMIT)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def suggestion(name: object, known: Iterable[str], *, otherwise: str) -> str:
    """`Did you mean 'linear'?`, or `otherwise` where no known name is near."""
    near = get_close_matches(str(name), list(known), n=1, cutoff=0.5)
    return f"Did you mean {near[0]!r}?" if near else otherwise


def shown(value: object) -> str:
    """A short repr in one line: of a tensor its shape and type, of a module its class."""
    if isinstance(value, Tensor):
        if value.is_nested:
            return "a nested tensor"
        return f"a tensor {list(value.shape)} of {value.dtype}"
    try:
        text = _SHORT.repr(value)
    except Exception:  # a value whose own repr is broken
        text = "\n"
    return text if "\n" not in text else f"a {type(value).__name__}"


_SHORT = reprlib.Repr()
_SHORT.maxstring = _SHORT.maxother = 80
_SHORT.maxlevel = 3


USUAL = {torch.float32, torch.int64, torch.bool}
"""Types that are not printed."""


def outline(fields: Mapping[str, object]) -> str:
    """Tensors as shapes: `k=[2 4 16 8], length=[2]`; a type other than float32, int64 and bool, and a device other than the CPU, are added."""
    return ", ".join(f"{name}={_outlined(value)}" for name, value in fields.items())


def _outlined(value: object) -> str:
    if type(value) in (tuple, list):
        return f"({', '.join(map(_outlined, value))})"  # type: ignore[call-overload]
    if not isinstance(value, Tensor):
        return repr(value)
    words = ["nested" if value.is_nested else f"[{' '.join(map(str, value.shape))}]"]
    if value.dtype not in USUAL:
        words.append(str(value.dtype).removeprefix("torch."))
    if value.device.type != "cpu":
        words.append(str(value.device))
    return " ".join(words)


def visible(text: str) -> str:
    """The text with every character that a terminal obeys, or that a reader cannot see, written as its escape.

    >>> visible("soft\\x1b[2Jmax")
    'soft\\\\x1b[2Jmax'
    """
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def is_whole(text: str) -> bool:
    """True if the text holds no halves of characters, which UTF-8 does not have."""
    return not any("\ud800" <= letter <= "\udfff" for letter in text)


def visible_lines(text: str) -> str:
    """The same, with line breaks kept."""
    return "\n".join(map(visible, text.split("\n")))
