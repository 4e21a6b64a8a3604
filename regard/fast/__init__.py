"""Replacements of plain forms: the same functions, faster on some devices, in one table. They serve first derivatives.

An entry is a function with the plain form's signature and `form=`, whose sizes it may use. Deleting this folder leaves every law green.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar, cast

import torch
from torch import Tensor
from torch.compiler import is_compiling

from regard.core import UnknownNameError, UnsupportedError
from regard.core.packages import lacking
from regard.fast import fla, flex, scan, sdpa
from regard.fast.cpu import efficient, favor, fourier, pattern, sorted as sorted_chunks, sums
from regard.functional.rows import Form, record_of_this

Made = TypeVar("Made", Tensor, tuple[Tensor, ...])


@dataclass(frozen=True)
class Entry:
    """One replacement, and the calls that it takes.

    unfit: called like the function; a reason why it cannot serve, or None; by default it serves any. shortest: fewest queries from which "auto" takes it.
    package: an optional one that it needs, with its oldest version. compiles: torch.compile captures it. elsewhere: named, it also computes
    forward passes on other devices.
    """

    name: str
    function: Callable
    about: str
    unfit: Callable[..., str | None] | None = None
    dtypes: tuple[torch.dtype, ...] = ()  # empty: all
    shortest: int = 0
    package: tuple[str, str] | None = None
    compiles: bool = False
    elsewhere: bool = False

    def lacks(self) -> str | None:
        """A package that is not installed, and what brings it."""
        return None if self.package is None else lacking(*self.package)

    def refuses(self, form: Form, tensors: Sequence, options: dict) -> str | None:
        """Why it cannot serve this call; None if it can."""
        dtype = tensors[0].dtype
        if lacks := self.lacks():
            return f"it needs {lacks}"
        if is_compiling() and not self.compiles:
            return "torch.compile does not capture it"
        if self.dtypes and dtype not in self.dtypes:
            return f"it computes in {', '.join(str(d) for d in self.dtypes)}, not {dtype}"
        return self.unfit(*tensors, form=form, **options) if self.unfit else None


PIECES = partial(Entry, "pieces", about="pieces of time in cache, computed again")
TILES = partial(Entry, "tiles", about="tiles in cache")
SDPA = Entry(
    "fused", sdpa.attend, "torch's scaled_dot_product_attention", unfit=sdpa.unfit, compiles=True
)
FUSED = {
    "softmax": SDPA,
    "synthesizer": replace(SDPA, function=sdpa.synthesized, unfit=sdpa.unfit_synthesized),
    "delta scan": Entry("opaque", scan.attend, "one step of a program", scan.unfit, compiles=True),
}
FLEX = Entry(
    "flex",
    flex.attend,
    "torch's FlexAttention, with a block mask built from the pattern",
    unfit=flex.unfit,
    dtypes=(torch.float32, torch.bfloat16, torch.float16),
    shortest=1024,
    elsewhere=True,
)
FLA = Entry(
    "fla",
    fla.causal_sums,
    "fla-core's chunked causal sums",
    unfit=fla.unfit,
    dtypes=(torch.bfloat16, torch.float16),  # it rounds float32 to 11 bits, whatever torch is told
    shortest=1024,
    package=("fla-core", "0.6"),
)
FAST = {
    **{(name, device): e for name, e in FUSED.items() for device in ("cpu", "cuda", "meta")},
    ("favor", "cpu"): PIECES(favor.attend, unfit=favor.unfit),
    ("efficient", "cpu"): PIECES(efficient.attend, unfit=efficient.unfit),
    ("causal sums", "cpu"): PIECES(sums.attend, unfit=sums.unfit),
    ("causal sums", "cuda"): FLA,
    ("window", "cpu"): TILES(pattern.window, unfit=pattern.unfit),
    ("pattern", "cpu"): TILES(pattern.attend, unfit=pattern.unlike),
    ("pattern", "cuda"): FLEX,
    ("window", "cuda"): replace(FLEX, function=flex.window, unfit=flex.unfit_window),
    ("fourier", "cpu"): Entry("adjoint", fourier.transform, "its own gradient", fourier.unfit),
    ("sorted", "cpu"): TILES(sorted_chunks.attend, unfit=sorted_chunks.unfit),
}
"""(operation, device) -> what "auto" takes there, if it serves."""

NAMES = tuple(dict.fromkeys(entry.name for entry in FAST.values()))


def entries(*operations: str) -> dict[str, Entry]:
    """The entries that these operations have on any device, by name."""
    return {e.name: e for (operation, _), e in FAST.items() if operation in operations}


def run(operation: str, plain: Callable, form: Form, *tensors: Any, **options: Any) -> Any:
    """The chosen entry's result, or the plain form's. An option of None is left out, so that an entry refuses others alone.

    Raises UnsupportedError where a named entry cannot serve.
    """
    options = {name: value for name, value in options.items() if value is not None}
    entry = _chosen(operation, form, tensors, options)
    record = None if is_compiling() else record_of_this.get()
    known = (operation, tensors[0].device.type) in FAST
    if record is not None and (known or entry):  # without a choice nothing is chosen
        record.names.add("plain" if entry is None else entry.name)
    if entry is None or (record is not None and record.plain_instead):
        return plain(*tensors, **options)
    fast = partial(entry.function, form=form, **options)
    if options.get("dropout"):  # a second draw would be another function
        return fast(*tensors)
    return twice_differentiable(fast, partial(plain, **options), *tensors)


def _chosen(operation: str, form: Form, tensors: Sequence, options: dict) -> Entry | None:
    q, name = tensors[0], form.name
    entry = FAST.get((operation, q.device.type))
    if name == "auto":
        if entry is None or q.shape[-2] < entry.shortest:
            return None
        return None if entry.refuses(form, tensors, options) else entry
    if entry is None or entry.name != name:
        entry = entries(operation).get(name)
        entry = entry if entry and entry.elsewhere else None
        if entry and q.requires_grad:
            raise UnsupportedError(
                f'impl={name!r} cannot serve: it has no backward pass on {q.device.type}. Use impl="plain"'
            )
    if name not in NAMES:
        raise UnknownNameError("impl", name, ["auto", "plain", *NAMES])
    if entry is None:  # another operation of the mixer has it
        return None
    if why := entry.refuses(form, tensors, options):
        raise UnsupportedError(f'impl={name!r} cannot serve: {why}. Use impl="plain"')
    return entry


# ------------------------------------------------------------------ second derivatives of kernels that have a first one by hand


def twice_differentiable(
    fast: Callable[..., Made], plain: Callable[..., Made], *inputs: Tensor | None
) -> Made:
    """fast(*inputs), where plain(*inputs) is the same function in operations that autograd can differentiate again.

    The first derivative is that of `fast`, which may be written by hand: autograd would take the tensors saved for it
    for constants. Where it is differentiated itself (create_graph=True), `plain` takes its place. Neither function may hold a tensor
    that needs a gradient and is not among the inputs.
    """
    y = fast(*inputs)
    needs = torch.is_grad_enabled() and any(z is not None and z.requires_grad for z in inputs)
    if is_compiling() or not needs:
        return y
    if isinstance(y, Tensor):
        return _Twice.apply(plain, 1, y, *inputs)[0]
    return cast(Made, _Twice.apply(plain, len(y), *y, *inputs))


def by_autograd(
    plain: Callable[..., Made], inputs: Sequence[Tensor | None], gradients: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Gradients of the inputs from those of plain(*inputs), differentiable themselves; None for inputs that need none."""
    # Aliases: an input that was made from another one is not differentiated through here.
    own = [z.view_as(z) if z is not None and z.requires_grad else z for z in inputs]
    y = plain(*own)
    made = (y,) if isinstance(y, Tensor) else y
    both = zip(made, gradients, strict=True)
    given = [(z, dz.type_as(z)) for z, dz in both if dz is not None and z.requires_grad]
    asked = [z for z in own if z is not None and z.requires_grad]
    if not given:
        return [None] * len(own)
    outputs, their = zip(*given, strict=True)
    found = iter(torch.autograd.grad(outputs, asked, their, create_graph=True, allow_unused=True))
    return [next(found) if z is not None and z.requires_grad else None for z in own]


class _Twice(torch.autograd.Function):
    """A fast kernel's outputs, unchanged; the plain form and the inputs are kept beside them."""

    @staticmethod
    def forward(ctx, plain, count: int, *tensors: Tensor | None):
        ctx.plain = plain
        ctx.count = count
        ctx.save_for_backward(*tensors[count:])
        ctx.set_materialize_grads(False)
        return tuple(y.detach() for y in cast(tuple[Tensor, ...], tensors[:count]))

    @staticmethod
    def backward(ctx, *dy: Tensor | None):
        """Gradients come from the fast kernel or, where the result is to be differentiated again, from the plain form."""
        inputs = ctx.saved_tensors
        if torch.is_grad_enabled():
            return None, None, *(None for _ in dy), *by_autograd(ctx.plain, inputs, dy)
        return None, None, *dy, *(None for _ in inputs)
