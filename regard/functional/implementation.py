"""Which implementation computes a family of kernels: a choice of speed that never changes the meaning.

`impl="eager"` is plain PyTorch and serves everything, everywhere. IMPLEMENTATIONS lists the others and what each can
do; "auto" takes the first that fits device, type, length and mask, and eager otherwise.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass

import torch
from torch import Tensor

from regard.core.errors import UnknownNameError, UnsupportedError
from regard.core.mask import Mask


@dataclass(frozen=True)
class Implementation:
    """What it serves. `without`: fields of a mask that it does not take. `shortest`: below, "auto" leaves it."""

    family: str
    name: str
    devices: tuple[str, ...]  # where "auto" takes it; named, it runs anywhere
    dtypes: tuple[torch.dtype, ...]
    shortest: int
    without: tuple[str, ...]
    about: str

    def serves(self, q: Tensor, mask: Mask) -> str | None:
        """None, or why not."""
        if q.dtype not in self.dtypes:
            return f"it computes in {', '.join(str(d) for d in self.dtypes)}, not {q.dtype}"
        if q.device.type != "cuda" and q.requires_grad:
            return f"it has no backward pass on {q.device.type}"
        for field in self.without:
            if getattr(mask, field) is not None:
                return f"it does not take {field}"
        return None


IMPLEMENTATIONS = (
    Implementation(
        family="pattern",
        name="flex",
        devices=("cuda",),
        dtypes=(torch.float32, torch.bfloat16, torch.float16),
        shortest=1024,
        without=("pairwise", "global_tokens"),
        about="torch's FlexAttention, with a block mask built from the pattern",
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


_chosen: ContextVar[set[str] | None] = ContextVar("chosen", default=None)


@contextmanager
def recorded() -> Iterator[set[str]]:
    """The names of the implementations that compute while it is open; empty where only kernels without a choice did."""
    names: set[str] = set()
    token = _chosen.set(names)
    try:
        yield names
    finally:
        _chosen.reset(token)


def choose(family: str, impl: str, q: Tensor, mask: Mask, *, plain: bool = True) -> str:
    """The implementation that computes. `plain`: nothing is asked that only eager can do.

    Raises UnsupportedError where a named one cannot serve.
    """
    name = _choice(family, impl, q, mask, plain)
    if not torch.compiler.is_compiling():
        chosen = _chosen.get()
        if chosen is not None:
            chosen.add(name)
    return name


def _choice(family: str, impl: str, q: Tensor, mask: Mask, plain: bool) -> str:
    check_impl(family, impl, family)
    if impl == "eager":
        return "eager"
    if impl == "auto" and (q.device.type == "cpu" or torch.compiler.is_compiling()):
        return "eager"
    for entry in IMPLEMENTATIONS:
        if entry.family != family or impl not in ("auto", entry.name):
            continue
        why = entry.serves(q, mask) if plain else "global or learned tokens stand before the others"
        if impl == entry.name:
            if why is not None:
                raise UnsupportedError(f'impl={impl!r} cannot serve: {why}. Use impl="eager"')
            return impl
        if why is None and q.device.type in entry.devices and q.shape[2] >= entry.shortest:
            return entry.name
    return "eager"
