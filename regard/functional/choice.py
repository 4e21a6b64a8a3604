"""Where a plain form is replaced: the one line with which every public function of `functional` begins.

    "auto"      the first entry of `regard.fast` for this operation and device that serves the call; else the plain form
    "plain"     plain PyTorch: every request, every device, derivatives of any order
    "fused" ..  an entry of `regard.fast`, or an error that says why it cannot serve
    Form(..)    one of these names, with the sizes in which work is cut

The plain form also runs under `torch.func` and `torch.export`, and where a gradient is differentiated again. Without `regard.fast`
it is all there is.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from typing import Any, TypeVar

import torch
from torch.autograd import forward_ad

from regard.core.errors import OptionError, UnknownNameError, UnsupportedError

Made = TypeVar("Made")


@dataclass(frozen=True)
class Form:
    """A name that `impl` takes, with sizes; None: the operation's own.

    tile: queries whose scores are held at once. chunk: tokens of a chunk of time. room: bytes of temporaries that each thread holds at
    once. Raises OptionError for a size that is not a positive integer.
    """

    name: str = "auto"
    tile: int | None = None
    chunk: int | None = None
    room: int | None = None

    def __post_init__(self):
        for name, size in (("tile", self.tile), ("chunk", self.chunk), ("room", self.room)):
            if size is not None and (type(size) is not int or size < 1):
                raise OptionError(f"Form: {name} must be a positive integer, got {size!r}")


Impl = str | Form


def choose(
    operation: str, plain: Callable[..., Made], impl: Impl = "auto", **sizes: int
) -> Callable[..., Made]:
    """`plain` in these sizes, or what replaces it; to be called with every tensor that may need a gradient by position, q first."""
    form = impl if isinstance(impl, Form) else Form(impl)
    own = partial(plain, **sizes_of(form, **sizes))
    if form.name == "plain" or plain_alone():
        return own
    fast = replacements()
    return own if fast is None else partial(fast.run, operation, own, form)


def sizes_of(impl: Impl, **sizes: int) -> dict[str, int]:
    """The sizes that `impl` gives, and these where it gives none."""
    form = impl if isinstance(impl, Form) else Form(impl)
    return {name: getattr(form, name) or size for name, size in sizes.items()}


def plain_alone() -> bool:
    """True where the plain form alone is right: under torch.func's transforms, forward-mode AD, and while a program is exported."""
    transformed = torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0
    return transformed or torch.compiler.is_exporting()


def replacements() -> Any:
    """`regard.fast`, or None where that folder was left out."""
    if not _FAST:
        return None
    from regard import fast

    return fast


def names_of() -> tuple[str, ...]:
    """Names of all replacements."""
    fast = replacements()
    return () if fast is None else fast.NAMES


_FAST = find_spec("regard.fast") is not None


def check_impl(who: str, impl: Impl, *operations: str) -> Impl:
    """`impl`, if one of a mixer's operations has it.

    Raises UnknownNameError, or UnsupportedError where none has, or where it needs a package that is not installed.
    """
    name = impl.name if isinstance(impl, Form) else impl
    if name in ("auto", "plain"):
        return impl
    fast = replacements()
    if name not in names_of():
        raise UnknownNameError("impl", name, ["auto", "plain", *names_of()])
    has = fast.names(operations)
    if name not in has:
        raise UnsupportedError(
            f"{who} has no implementation {name!r}. It has {', '.join(('plain', *has))}"
        )
    if lacks := fast.lacks(operations, name):
        raise UnsupportedError(f'{who}: impl={name!r} needs {lacks}, or use impl="plain"')
    return impl


@dataclass(frozen=True)
class Record:
    names: set[str]
    plain_instead: bool


record_of_this: ContextVar[Record | None] = ContextVar("record", default=None)


@contextmanager
def recorded(*, plain_instead: bool = False) -> Iterator[set[str]]:
    """The names of the entries that compute while it is open.

    plain_instead: the plain form computes whatever is chosen and recorded, for a count of operations that sees them all.
    """
    record = Record(set(), plain_instead)
    token = record_of_this.set(record)
    try:
        yield record.names
    finally:
        record_of_this.reset(token)
