"""Which implementation computes a family of kernels: a choice of speed that never changes the meaning.

`impl="eager"` is plain PyTorch and serves everything, everywhere. IMPLEMENTATIONS lists the others and what each can
do; "auto" takes the first that fits device, type, length and mask, and eager otherwise.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor

from regard.core.errors import UnknownNameError, UnsupportedError
from regard.core.mask import Mask
from regard.core.packages import lacking


@dataclass(frozen=True)
class Implementation:
    """What it serves. `without`: fields of a mask that it does not take. `shortest`: below, "auto" leaves it."""

    family: str
    name: str
    devices: tuple[str, ...]  # where "auto" takes it
    dtypes: tuple[torch.dtype, ...]
    shortest: int
    about: str
    elsewhere: bool = False  # whether, named, it computes forward passes on other devices
    narrowest: int = 1  # channels of q
    causal_only: bool = False
    without: tuple[str, ...] = ()
    packages: tuple[tuple[str, str], ...] = ()  # optional ones, each with its oldest version

    def lacks(self) -> str | None:
        """A package that is not installed, and what brings it."""
        return next(filter(None, (lacking(*package) for package in self.packages)), None)

    def serves(self, q: Tensor, mask: Mask) -> str | None:
        """None, or why not."""
        device, lacks = q.device.type, self.lacks()
        if lacks is not None:
            return f"it needs {lacks}"
        if device not in self.devices and not self.elsewhere:
            return f"it runs on {', '.join(self.devices)} alone, not on {device}"
        if device not in self.devices and q.requires_grad:
            return f"it has no backward pass on {device}"
        if q.dtype not in self.dtypes:
            return f"it computes in {', '.join(str(d) for d in self.dtypes)}, not {q.dtype}"
        if q.shape[-1] < self.narrowest:
            return f"it needs {self.narrowest} channels in a head, not {q.shape[-1]}"
        if self.causal_only and not mask.causal:
            return "it is for causal order alone"
        for field in self.without:
            if getattr(mask, field) is not None:
                return f"it does not take {field}"
        return None


_FLA = partial(
    Implementation,
    name="fla",
    devices=("cuda",),
    dtypes=(torch.bfloat16, torch.float16),  # it rounds float32 to 11 bits, whatever torch is told
    shortest=1024,
    causal_only=True,  # without an order two matrix products are all there is
)
IMPLEMENTATIONS = (
    Implementation(
        family="pattern",
        name="flex",
        devices=("cuda",),
        dtypes=(torch.float32, torch.bfloat16, torch.float16),
        shortest=1024,
        about="torch's FlexAttention, with a block mask built from the pattern",
        elsewhere=True,
        narrowest=16,
        without=("pairwise", "global_tokens"),
    ),
    _FLA(
        family="linear",
        packages=(("fla-core", "0.6"),),
        about="fla-core's chunked causal sums",
    ),
    _FLA(
        family="decayed linear",  # gates, and the running stabiliser of positive features
        packages=(("fla-core", "0.6"), ("triton", "3.7.1")),  # gradients before it: fla's issue 640
        about="fla-core's chunked causal sums with a decay",
    ),
)
NAMES = ("auto", "eager", *dict.fromkeys(entry.name for entry in IMPLEMENTATIONS))


def check_impl(who: str, impl: str, family: str | None) -> None:
    """Raises UnknownNameError, or UnsupportedError where this family has no such implementation."""
    if impl not in NAMES:
        raise UnknownNameError("impl", impl, NAMES)
    has = [entry.name for entry in IMPLEMENTATIONS if entry.family == family]
    if impl not in ("auto", "eager", *has):
        raise UnsupportedError(
            f"{who} has no implementation {impl!r}. It has {', '.join(('eager', *has))}"
        )
    for entry in IMPLEMENTATIONS:
        lacks = entry.lacks() if (entry.family, entry.name) == (family, impl) else None
        if lacks is not None:
            raise UnsupportedError(f'{who}: impl={impl!r} needs {lacks}, or use impl="eager"')


@dataclass(frozen=True)
class _Record:
    names: set[str]
    eager_instead: bool


_record: ContextVar[_Record | None] = ContextVar("record", default=None)


@contextmanager
def recorded(*, eager_instead: bool = False) -> Iterator[set[str]]:
    """The names of the implementations that compute while it is open; empty where only kernels without a choice did.

    eager_instead: eager computes whatever is chosen and recorded, for a count of operations that sees them all.
    """
    record = _Record(set(), eager_instead)
    token = _record.set(record)
    try:
        yield record.names
    finally:
        _record.reset(token)


def choose(family: str, impl: str, q: Tensor, mask: Mask, *, plain: bool = True) -> str:
    """The implementation that computes. `plain`: nothing is asked that only eager can do.

    Raises UnsupportedError where a named one cannot serve.
    """
    name = _choice(family, impl, q, mask, plain)
    record = None if torch.compiler.is_compiling() else _record.get()
    if record is not None:
        record.names.add(name)
        return "eager" if record.eager_instead else name
    return name


def _choice(family: str, impl: str, q: Tensor, mask: Mask, plain: bool) -> str:
    check_impl(family, impl, family)
    if impl == "eager" or (impl == "auto" and torch.compiler.is_compiling()):
        return "eager"
    for entry in IMPLEMENTATIONS:
        fits = q.device.type in entry.devices and q.shape[2] >= entry.shortest
        asked = fits if impl == "auto" else impl == entry.name
        if entry.family != family or not asked:
            continue
        why = entry.serves(q, mask) if plain else "global or learned tokens stand before the others"
        if why is not None and impl != "auto":
            raise UnsupportedError(f'impl={impl!r} cannot serve: {why}. Use impl="eager"')
        if why is None:
            return entry.name
    return "eager"
