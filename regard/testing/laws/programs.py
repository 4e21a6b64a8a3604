"""torch.compile and torch.export make programs with the mixer's outputs and gradients."""

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils._pytree import tree_flatten

from regard.core import Mixer
from regard.testing.subject import B, LawError, Request, Subject, require_same

AT = 64
ASKED = ((2 * B, 9), (2 * B, 200), (B, 512))
"""Rows, and tokens of each."""
BOUND = 1e-10


def compiled(subject: Subject) -> None:
    """torch.compile captures the whole graph, outputs and gradients, in the blocks that users get."""
    mixer = subject.make(blocks="own")
    x = subject.x
    # A graph with padding holds the one without, but for fast paths.
    for request in subject.samples():
        torch.compiler.reset()
        program = cast(nn.Module, torch.compile(mixer, fullgraph=True, backend="eager"))
        _require_program(program, mixer, x, request, "compiled")


def exported(subject: Subject) -> None:
    """torch.export gives one program for all batches and lengths, and one for those at hand, with the mixer's outputs and gradients.

    The first is exported at 2 rows of 64 tokens and asked at others. A dense T x T form may take the place of what is cut into blocks; a loop over T
    may not, which would have the length at which it was exported. `free_length` is about the last declared order, padded, whose graph is the
    largest; `exported` about the others, that order without padding, and a program of one length.
    """
    *others, last = subject.orders()
    for order in others:
        _serves_all_lengths(subject, order, padded=True)
    if subject.can.padding:
        _serves_all_lengths(subject, last, padded=False)
    mixer = subject.make(blocks="own")
    x = subject.x
    request = subject.samples()[-1]
    _require_program(_exported(mixer, x, request), mixer, x, request, "exported")


def free_length(subject: Subject) -> None:
    """One exported program serves batches of all sizes and lengths, in causal order and padded where that is declared."""
    _serves_all_lengths(subject, subject.orders()[-1], padded=True)


def _serves_all_lengths(subject: Subject, order: Request, *, padded: bool) -> None:
    mixer = subject.make(blocks="own", max_len=512)
    most = None if subject.can.any_length else mixer.max_len

    def at(rows: int, length: int) -> tuple[Tensor, Request]:
        request = subject.padded(order, length, rows) if padded else order
        return subject.tokens(rows, length), request

    program = _exported(mixer, *at(B, AT), free=True)
    for rows, length in ASKED:
        if most is None or length <= most:
            _require_program(
                program,
                mixer,
                *at(rows, length),
                f"exported at {B} rows of {AT} tokens, asked at {rows} of {length}",
            )


def _exported(mixer: Mixer, x: Tensor, request: Request, *, free: bool = False) -> nn.Module:
    options: Any = {}
    if free:
        sizes = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
        fields, _ = tree_flatten(request.mask, is_leaf=lambda z: z is not request.mask)
        of_mask = [None if z is None else sizes for z in fields]
        options["dynamic_shapes"] = {"x": sizes, "mask": of_mask}
        options["prefer_deferred_runtime_asserts_over_guards"] = True
    try:
        program = torch.export.export(mixer, (x,), {"mask": request.mask}, strict=False, **options)
    except Exception as error:
        which = "for any batch and length" if free else f"for {x.shape[1]} tokens"
        said = f"{request.label}: {type(error).__name__}: {error}"
        raise LawError(f"not exported {which}, {said}") from error
    return program.module()


def _require_program(
    program: nn.Module, mixer: Mixer, x: Tensor, request: Request, what: str
) -> None:
    """A program may have copies of those parameters that it uses, and no others."""
    found, expected = (request.results(module, x) for module in (program, mixer))
    require_same(found, expected, BOUND, f"{what}, {request.label}")
