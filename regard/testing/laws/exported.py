"""torch.export gives one program for all lengths, and one for the length at hand, with the mixer's outputs and gradients.

The first is exported at 64 tokens and asked at others. A dense T x T form may take the place of what is cut into blocks; a loop over T may
not, which would have the length at which it was exported.
"""

from functools import partial
from typing import Any

import torch
from torch import nn
from torch.export import Dim
from torch.utils._pytree import tree_flatten

from regard.core import Mask, Mixer
from regard.testing.subject import B, Subject, require, require_results

AT = 64
ASKED = (9, 200, 511)


def law(subject: Subject) -> None:
    mixer = subject.make(blocks="own", max_len=ASKED[-1] + 1)
    ragged = [False, True] if subject.can.padding else [False]
    kinds = [(causal, padded) for causal in subject.causalities() for padded in ragged]
    for causal, padded in kinds:
        mask = partial(_mask, causal, padded)
        program = exported(mixer, subject, mask(AT), free=True)
        for length in ASKED if subject.can.any_length else _up_to(mixer.max_len):
            what = f"exported at {AT} tokens, asked at {length}"
            require_results(program, mixer, subject.tokens(B, length), mask(length), what)
    for strict in (False, True):
        program = exported(mixer, subject, mask(AT), strict=strict)
        what = "exported, strict=True" if strict else "exported"
        require_results(program, mixer, subject.tokens(B, AT), mask(AT), what)


def _up_to(max_len: int | None) -> list[int]:
    return [length for length in ASKED if max_len is None or length <= max_len]


def _mask(causal: bool, padded: bool, length: int) -> Mask:
    valid = torch.arange(length) < torch.tensor([[length], [length - 4]])
    return Mask(causal, valid=valid if padded else None)


def exported(
    mixer: Mixer, subject: Subject, mask: Mask, *, free: bool = False, strict: bool = False
) -> nn.Module:
    x, options = subject.tokens(B, AT), dict[str, Any]()
    if free:
        length = {1: Dim.DYNAMIC}
        fields, _ = tree_flatten(mask, is_leaf=lambda z: z is not mask)
        of_mask = [None if z is None else length for z in fields]
        options["dynamic_shapes"] = {"x": length, "mask": of_mask}
        options["prefer_deferred_runtime_asserts_over_guards"] = True
    try:
        program = torch.export.export(mixer, (x,), {"mask": mask}, strict=strict, **options)
    except Exception as error:
        which = "for any length" if free else f"for {AT} tokens"
        require(False, f"not exported {which}{_said(mask)}: {type(error).__name__}: {error}")
    return program.module()


def _said(mask: Mask) -> str:
    return ", causal" * mask.causal + ", padded" * (mask.valid is not None)
