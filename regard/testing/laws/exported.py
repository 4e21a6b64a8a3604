"""torch.export gives one program for all lengths, and one for the length at hand, with the mixer's outputs and gradients.

The first is exported at 64 tokens and asked at others. A dense T x T form may take the place of what is cut into blocks; a loop over T may
not, which would have the length at which it was exported. `free_length` is about padded batches, whose graph is the larger one; `law` about
those without padding, and about programs of one length.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.export import Dim
from torch.utils._pytree import tree_flatten

from regard.core import Mask, Mixer
from regard.testing.subject import B, Subject, T, require, require_results

AT = 64
ASKED = (9, 200, 511)


def free_length(subject: Subject) -> None:
    for causal in subject.causalities():
        _serves_all_lengths(subject, causal, padded=bool(subject.can.padding))


def law(subject: Subject) -> None:
    for causal in subject.causalities() if subject.can.padding else []:
        _serves_all_lengths(subject, causal, padded=False)
    mixer, x = subject.make(blocks="own"), subject.tokens(B, T)
    mask = _mask(subject.causalities()[-1], bool(subject.can.padding), T)
    for strict in (False, True):
        program = exported(mixer, x, mask, strict=strict)
        what = "exported, strict=True" if strict else "exported"
        require_results(program, mixer, x, mask, what)


def _serves_all_lengths(subject: Subject, causal: bool, *, padded: bool) -> None:
    mixer, mask = subject.make(blocks="own", max_len=ASKED[-1] + 1), partial(_mask, causal, padded)
    program = exported(mixer, subject.tokens(B, AT), mask(AT), free=True)
    for length in ASKED if subject.can.any_length else _up_to(mixer.max_len):
        what = f"exported at {AT} tokens, asked at {length}"
        require_results(program, mixer, subject.tokens(B, length), mask(length), what)


def _up_to(max_len: int | None) -> list[int]:
    return [length for length in ASKED if max_len is None or length <= max_len]


def _mask(causal: bool, padded: bool, length: int) -> Mask:
    valid = torch.arange(length) < torch.tensor([[length], [length - 4]])
    return Mask(causal, valid=valid if padded else None)


def exported(
    mixer: Mixer, x: Tensor, mask: Mask, *, free: bool = False, strict: bool = False
) -> nn.Module:
    options = dict[str, Any]()
    if free:
        length = {1: Dim.DYNAMIC}
        fields, _ = tree_flatten(mask, is_leaf=lambda z: z is not mask)
        of_mask = [None if z is None else length for z in fields]
        options["dynamic_shapes"] = {"x": length, "mask": of_mask}
        options["prefer_deferred_runtime_asserts_over_guards"] = True
    try:
        program = torch.export.export(mixer, (x,), {"mask": mask}, strict=strict, **options)
    except Exception as error:
        which = "for any length" if free else f"for {x.shape[1]} tokens"
        require(False, f"not exported {which}{_said(mask)}: {type(error).__name__}: {error}")
    return program.module()


def _said(mask: Mask) -> str:
    return ", causal" * mask.causal + ", padded" * (mask.valid is not None)
