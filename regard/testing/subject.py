"""The subject of a law: a way to make fresh mixers, and the inputs and requests that suit what they declare."""

import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_map_only

from regard import Form
from regard.core import CAUSAL, Mask, Mixer, OptionError, shown
from regard.testing.verdicts import (
    Judged,
    LawError as LawError,
    NotDeclared,
    require as require,
    require_close,
)

B, T, S = 2, 13, 9  # odd, small and distinct

TINY = Form(tile=4, chunk=3, room=2048)
"""Blocks so small that T tokens cross many tiles, chunks and pieces."""

ASKED = ("causal", "valid", "pairwise", "global_tokens")  # fields of a mask that an oracle takes
Blocks = Literal["tiny", "own"]
Tensors = dict[str, Tensor]
Oracle = Callable
Factory = Callable[[], Mixer]


@dataclass(frozen=True)
class Request:
    """One way of calling a mixer, or a method of its: `mixer(x, context=request.context, mask=request.mask)`."""

    label: str
    mask: Mask
    context: Tensor | None = None

    def __call__(self, call: Callable, x: Tensor, **options: bool) -> Any:
        over = {} if self.context is None else {"context": self.context}
        return call(x, mask=self.mask, **over, **options)

    def but(self, label: str, **fields: Any) -> "Request":
        """The same with other fields of the mask."""
        return replace(self, label=f"{self.label}, {label}", mask=replace(self.mask, **fields))

    def of_many(
        self, mixer: Mixer, xs: list[Tensor], contexts: list[Tensor] | None = None
    ) -> list[Tensor]:
        """The outputs for several x, or several contexts of one x, by one call: rows of a batch know nothing of each other."""
        count = max(len(xs), len(contexts or ()))
        x = torch.cat(xs * (count // len(xs)))
        context = None if contexts is None else torch.cat(contexts)
        return list(mixer(x, context=context, mask=repeated(self.mask, count)).chunk(count))

    def results(self, module: nn.Module, x: Tensor, *, like: torch.dtype | None = None) -> Tensors:
        """The output, and the gradients of x, of the context and of every parameter."""
        x = x.detach().requires_grad_()
        return results(module, self(module, x), like=like, x=x, context=self.context)


def repeated(mask: Mask, count: int) -> Mask:
    """The mask of `count` batches, one behind the other; pairs of one row are for all rows."""

    def rows(z: Tensor) -> Tensor:
        return z if z.ndim == 4 and len(z) == 1 else z.repeat(count, *[1] * (z.ndim - 1))

    return tree_map_only(Tensor, rows, mask)


def cut(mask: Mask, cols: slice, row: int | None = None) -> Mask:
    """The mask of these tokens alone, and of one row alone; pairs of one row are for all rows."""

    def part(z: Tensor) -> Tensor:
        z = z if row is None else z[row % len(z)][None]
        return z[..., cols] if z.ndim < 4 else z[..., cols, cols]

    return tree_map_only(Tensor, part, mask)


def made(factory: Callable[[], Any], kind: type[Any]) -> Any:
    if isinstance(factory, nn.Module) or not callable(factory):
        raise OptionError(
            f"pass a function that makes the {kind.__name__}, such as lambda: ..., got {shown(factory)}"
        )
    one = factory()
    if not isinstance(one, kind):
        raise OptionError(f"the factory must return a {kind.__name__}, got {shown(one)}")
    return one


class Subject(Judged):
    """A mixer under test: `factory()` makes a fresh one; `oracle` is its reference function, if it has one."""

    def __init__(self, factory: Factory, oracle: Oracle | None = None, blocks: Blocks = "tiny"):
        super().__init__()
        self.blocks = blocks
        self.factory = factory
        self.oracle = oracle
        first = made(factory, Mixer)
        self.cls = type(first)
        self.name = first.name
        self.can = first.capabilities
        self.dim = first.dim
        self.num_heads = getattr(first, "num_heads", 1)
        self.longest = 10**9 if self.can.any_length else first.max_len or 10**9
        if self.longest < T:
            raise OptionError(f"the laws take rows of {T} tokens, and max_len is {self.longest}")
        self.streams = self.can.streaming == "exact"  # `extend` equals `forward`, however it is cut
        self.options = first.options
        impl = self.options.get("impl")
        self.takes_blocks = impl in ("auto", "plain") or isinstance(impl, Form)

    def make(
        self,
        dtype: torch.dtype = torch.float64,
        seed: int = 0,
        *,
        blocks: Blocks | Form | None = None,
        max_len: int | None = None,
    ) -> Mixer:
        """A fresh mixer whose parameters are moved away from special values such as zero and one.

        blocks: sizes of tiles and chunks, where the class has the option `impl`; "own": what the factory says;
        by default the subject's.
        max_len: in the place of the factory's, where the class has this option.
        """
        blocks = blocks or self.blocks
        changes: Any = {}
        if self.takes_blocks and blocks != "own":
            changes["impl"] = TINY if blocks == "tiny" else blocks
        if max_len and "max_len" in self.options:
            changes["max_len"] = max_len
        torch.manual_seed(seed)
        # A copy: an option may be a module, which another mixer has.
        mixer = self.cls(**deepcopy(dict(self.options)) | changes) if changes else self.factory()
        generator = seeded(seed + 1)
        with torch.no_grad():
            for parameter in mixer.parameters():
                parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
        return mixer.to(dtype).eval()

    def require_declared(self, what: str) -> None:
        """Raise NotDeclared, with the reason, where the capability of this name is a `No`."""
        reason = self.can.refusals().get(what)
        if reason is not None:
            raise NotDeclared(f"{what} is declared a No: {reason}")

    def tokens(self, *shape: int, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
        """Normal values [*shape, D]; different for every shape and seed."""
        return normal(*shape, self.dim, seed=zlib.crc32(repr((shape, seed)).encode())).to(dtype)

    @property
    def x(self) -> Tensor:
        return self.tokens(B, T)

    @property
    def mask(self) -> Mask:
        """All may see all, or where that is not declared, what came before."""
        return Mask(causal=not self.can.bidirectional)

    def orders(self) -> list[Request]:
        """One request for each declared order of time."""
        plain = Request("plain", Mask())
        causal = Request("causal", CAUSAL)
        return [plain] * bool(self.can.bidirectional) + [causal] * bool(self.can.causal)

    def padded(self, order: Request, length: int = T, rows: int = B) -> Request:
        """The request with four absent tokens at the end of every second row, where padding is declared."""
        valid = torch.arange(length) < torch.tensor([[length], [length - 4]]).repeat(rows // B, 1)
        return order.but("padded", valid=valid) if self.can.padding else order

    def samples(self) -> list[Request]:
        """Few requests: the orders, of which the last has padding where that is declared."""
        orders = self.orders()
        return [orders[0], self.padded(orders[-1])] if self.can.padding else orders

    def requests(self, rows: int = B, *, dtype: torch.dtype = torch.float64) -> Iterator[Request]:
        """Every declared yes, and every choice of several: causal, padding, pairwise, global tokens, cross.

        Absent tokens are between others; on one side, the law on padding proves them equal to none.
        """
        context = self.tokens(rows, S, seed=7, dtype=dtype).requires_grad_()
        for source, order in product([None, context] if self.can.cross else [None], self.orders()):
            cross = source is not None
            causal = order.mask.causal
            for label, mask in self._masks(rows, S if cross else T, cross):
                yield Request(
                    f"{'cross ' * cross}{'causal ' * causal}{label}".strip() or "plain",
                    replace(mask, causal=causal),
                    source,
                )

    def _masks(self, rows: int, keys: int, cross: bool) -> Iterator[tuple[str, Mask]]:
        generator = seeded(11)

        def chance(*shape: int, share: float) -> Tensor:
            return torch.rand(*shape, generator=generator) < share

        choices = {
            "interior padding": (self.can.padding, chance(rows, keys, share=0.6)),
            "pairwise": (self.can.pairwise, chance(rows, self.num_heads, T, keys, share=0.5)),
            "global": (self.can.global_tokens and not cross, chance(rows, keys, share=0.3)),
        }
        drawn = [(None, value) if able else (None,) for able, value in choices.values()]
        for some in product(*drawn):
            label = ", ".join(name for name, z in zip(choices, some, strict=True) if z is not None)
            valid, pairwise, marks = some
            yield label, Mask(valid=valid, pairwise=pairwise, global_tokens=marks)
        if self.can.pairwise:
            yield "shared pairwise", Mask(pairwise=chance(1, 1, T, keys, share=0.5))

    def consult(self, mixer: Mixer, request: Request, x: Tensor) -> Any:
        """The oracle's (y, weights) for this request, given the structure that the mixer really uses."""
        assert self.oracle is not None
        return self.oracle(
            tensors(mixer),
            mixer.options,
            x,
            context=request.context,
            **{name: getattr(request.mask, name) for name in ASKED},
            plan=request(mixer.plan, x),
        )


def seeded(seed: int) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def normal(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=seeded(seed), dtype=torch.float64)


def tensors(module: nn.Module) -> Tensors:
    """Parameters (as leaves, so that gradients reach them) and buffers, under their state-dict names."""
    return dict(module.named_parameters()) | dict(module.named_buffers())


def projected(y: Tensor, *, like: torch.dtype | None = None) -> Tensor:
    """Sum of y times fixed normal numbers of y's type, or first rounded to `like`."""
    return (y * normal(*y.shape, seed=5).to(like or y.dtype).to(y.dtype)).sum()


def gradients(
    y: Tensor, leaves: list[Tensor], *, like: torch.dtype | None = None, create_graph: bool = False
) -> list[Tensor]:
    """Gradients of `projected(y)`; zero where a leaf takes no part."""
    if not y.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    total = projected(y, like=like)
    return [*torch.autograd.grad(total, leaves, create_graph=create_graph, materialize_grads=True)]


def results(
    module: nn.Module, y: Tensor, *, like: torch.dtype | None = None, **inputs: Tensor | None
) -> Tensors:
    """y, and its gradients: of the inputs that are given, and of every parameter."""
    leaves = {name: z for name, z in inputs.items() if z is not None}
    leaves |= {n.removeprefix("_orig_mod."): z for n, z in module.named_parameters()}
    found = zip(leaves, gradients(y, [*leaves.values()], like=like), strict=True)
    return {"output": y} | {f"gradient of {name}": z for name, z in found}


def require_same(found: Tensors, expected: Tensors, bound: float, what: str) -> None:
    """Every result within the bound; what is not found, such as the gradient of a parameter that a program lacks, is zero."""
    for name, own in expected.items():
        require_close(found.get(name, torch.zeros_like(own)), own, bound, f"{what}: {name}")
