"""The subject of a law: a way to make fresh mixers, and the inputs and requests that suit what they declare."""

import zlib
from collections.abc import Callable, Iterator
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import product
from typing import Any, Literal

import torch
from torch import Tensor

from regard import Form
from regard.core import Mask, Mixer
from regard.testing.verdicts import Judged, LawError, NotDeclared, require, require_close

B, T, S = 2, 13, 9  # odd, small and distinct

TINY = Form(tile=4, chunk=3, room=2048)
"""Blocks so small that T tokens cross many tiles, chunks and pieces."""

Blocks = Literal["tiny", "own"]


@dataclass(frozen=True)
class Request:
    """One way of calling a mixer: `mixer(x, context=request.context, mask=request.mask)`."""

    label: str
    mask: Mask
    context: Tensor | None = None

    def __call__(self, mixer: Mixer, x: Tensor) -> Tensor:
        return mixer(x, context=self.context, mask=self.mask)

    def of_many(
        self, mixer: Mixer, xs: list[Tensor], contexts: list[Tensor] | None = None
    ) -> list[Tensor]:
        """The outputs for several x, or several contexts of one x, by one call: rows of a batch know nothing of each other."""
        count = max(len(xs), len(contexts or ()))
        x = torch.cat(xs * (count // len(xs)))
        context = None if contexts is None else torch.cat(contexts)
        return list(mixer(x, context=context, mask=repeated(self.mask, count)).chunk(count))


def repeated(mask: Mask, count: int) -> Mask:
    """The mask of `count` batches, one behind the other."""

    def rows(value: Tensor | None) -> Tensor | None:
        if value is None or (value.dim() == 4 and len(value) == 1):  # of pairs, for all rows
            return value
        return value.repeat(count, *[1] * (value.dim() - 1))

    return replace(
        mask,
        valid=rows(mask.valid),
        pairwise=rows(mask.pairwise),
        global_tokens=rows(mask.global_tokens),
    )


class Subject(Judged):
    """A mixer under test: `factory()` makes a fresh one; `oracle` is its reference function, if it has one."""

    def __init__(
        self,
        factory: Callable[[], Mixer],
        oracle: Callable[..., Any] | None = None,
        blocks: Blocks = "tiny",
    ):
        super().__init__()
        self.blocks = blocks
        self.factory = factory
        self.oracle = oracle
        first = factory()
        assert isinstance(first, Mixer), (
            f"the factory must return a regard.Mixer, got {type(first).__name__}"
        )
        self.cls = type(first)
        self.name, self.can, self.dim = first.name, first.capabilities, first.dim
        self.num_heads: int = getattr(first, "num_heads", 1)
        self.longest = 10**9 if self.can.any_length else first.max_len or 10**9
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
        blocks = self.blocks if blocks is None else blocks
        changes: dict[str, Any] = {}
        if self.takes_blocks and blocks != "own":
            changes["impl"] = TINY if blocks == "tiny" else blocks
        if max_len is not None and "max_len" in self.options:
            changes["max_len"] = max_len
        torch.manual_seed(seed)
        # A copy: an option may be a module, which another mixer has.
        own = deepcopy(dict(self.options)) | changes
        mixer = self.cls(**own) if changes else self.factory()
        generator = torch.Generator().manual_seed(seed + 1)
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
        generator = torch.Generator().manual_seed(zlib.crc32(repr((shape, seed)).encode()))
        return torch.randn(*shape, self.dim, generator=generator, dtype=torch.float64).to(dtype)

    def causalities(self) -> list[bool]:
        return [
            flag
            for flag, able in ((False, self.can.bidirectional), (True, self.can.causal))
            if able
        ]

    def requests(
        self, rows: int = B, length: int = T, *, dtype: torch.dtype = torch.float64
    ) -> Iterator[Request]:
        """Every declared yes, and every pair of them: causal, padding, pairwise, global tokens, cross."""
        context = self.tokens(rows, S, seed=7, dtype=dtype)
        sources = [("", None)] + ([("cross ", context)] if self.can.cross else [])
        for (where, source), causal in product(sources, self.causalities()):
            keys = length if source is None else S
            masks = self._masks(rows, length, keys, bool(self.can.global_tokens) and source is None)
            for label, mask in masks:
                name = f"{where}{'causal ' if causal else ''}{label}".strip() or "plain"
                yield Request(name, replace(mask, causal=causal), source)

    def _masks(
        self, rows: int, queries: int, keys: int, global_tokens: bool
    ) -> list[tuple[str, Mask]]:
        generator = torch.Generator().manual_seed(11)

        def chance(*shape: int, share: float) -> Tensor:
            return torch.rand(*shape, generator=generator) < share

        column = torch.arange(keys)
        amount = torch.arange(rows)[:, None] % 3 + 2
        interior = chance(rows, keys, share=0.6)
        pairwise = chance(rows, self.num_heads, queries, keys, share=0.5)
        marks = chance(rows, keys, share=0.3)
        masks = [("", Mask())]
        if self.can.padding:
            masks += [
                ("right padding", Mask(valid=column < keys - amount)),
                ("left padding", Mask(valid=column >= amount)),
                ("interior padding", Mask(valid=interior)),
            ]
        if self.can.pairwise:
            masks += [
                ("pairwise", Mask(pairwise=pairwise)),
                ("shared pairwise", Mask(pairwise=chance(1, 1, queries, keys, share=0.5))),
            ]
        if self.can.padding and self.can.pairwise:
            masks += [("pairwise, padding", Mask(pairwise=pairwise, valid=interior))]
        if global_tokens:
            masks += [("global", Mask(global_tokens=marks))]
        if global_tokens and self.can.padding:
            masks += [("global, padding", Mask(global_tokens=marks, valid=interior))]
        if global_tokens and self.can.padding and self.can.pairwise:
            together = Mask(global_tokens=marks, valid=interior, pairwise=pairwise)
            masks += [("global, pairwise, padding", together)]
        return masks

    def consult(
        self, mixer: Mixer, request: Request, x: Tensor, params: dict[str, Tensor] | None = None
    ) -> Any:
        """The oracle's (y, weights) for this request, given the structure that the mixer really uses."""
        assert self.oracle is not None
        return self.oracle(
            tensors(mixer) if params is None else params,
            mixer.options,
            x,
            context=request.context,
            causal=request.mask.causal,
            valid=request.mask.valid,
            pairwise=request.mask.pairwise,
            global_tokens=request.mask.global_tokens,
            plan=mixer.plan(x, context=request.context, mask=request.mask),
        )


def tensors(mixer: Mixer) -> dict[str, Tensor]:
    """Parameters (as leaves, so that gradients reach them) and buffers, under their state-dict names."""
    return dict(mixer.named_parameters()) | dict(mixer.named_buffers())


def projected(y: Tensor, seed: int = 5, *, like: torch.dtype | None = None) -> Tensor:
    """Sum of y times fixed normal numbers of y's type, or first rounded to `like`."""
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(y.shape, generator=generator, dtype=torch.float64)
    return (y * weight.to(like or y.dtype).to(y.dtype)).sum()


def gradients(
    y: Tensor,
    leaves: list[Tensor],
    seed: int = 5,
    *,
    like: torch.dtype | None = None,
    create_graph: bool = False,
) -> list[Tensor]:
    """Gradients of `projected(y)`; zero where a leaf takes no part."""
    if not y.requires_grad:
        return [torch.zeros_like(leaf) for leaf in leaves]
    total = projected(y, seed, like=like)
    found = torch.autograd.grad(total, leaves, allow_unused=True, create_graph=create_graph)
    return [
        torch.zeros_like(leaf) if g is None else g for g, leaf in zip(found, leaves, strict=True)
    ]


def require_results(
    module: torch.nn.Module, mixer: Mixer, x: Tensor, mask: Mask, what: str
) -> None:
    """Output and gradients of x and the parameters are the mixer's; a module may have copies of those that it uses, and no others."""
    kind = f"{what}{', causal' * mask.causal}{', padded' * (mask.valid is not None)}"
    found, expected = (_results(m, mixer, x, mask) for m in (module, mixer))
    for name, own in expected.items():
        require_close(found[name], own, 1e-10, f"{kind}: {name}")


def _results(module: torch.nn.Module, mixer: Mixer, x: Tensor, mask: Mask) -> dict[str, Tensor]:
    x = x.clone().requires_grad_()
    y = module(x, mask=mask)
    leaves = {"x": x}
    leaves |= {name.removeprefix("_orig_mod."): z for name, z in module.named_parameters()}
    found = dict(zip(leaves, gradients(y, [*leaves.values()]), strict=True))
    absent = {name: torch.zeros_like(z) for name, z in mixer.named_parameters()}
    return {"output": y} | {f"gradient of {name}": z for name, z in (absent | found).items()}


__all__ = [
    "TINY",
    "B",
    "Blocks",
    "LawError",
    "NotDeclared",
    "Request",
    "S",
    "Subject",
    "T",
    "gradients",
    "projected",
    "repeated",
    "require",
    "require_close",
    "require_results",
    "tensors",
]
