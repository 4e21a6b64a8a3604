"""Packed rows as Transformers writes them: positions that restart, offsets of a row's documents, or a number for each token.

DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)      gives all three
"""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor
from transformers.masking_utils import causal_mask_function

from regard.core import Mask, ShapeError, UnsupportedError
from regard.core.mask import check_integers
from regard.models.tokens import Numbers, Valid, places

OFFSETS = ("cu_seq_lens_q", "cu_seq_lens_k")
PACKING = ("position_ids", *OFFSETS, "seq_idx")
"""Arguments of Transformers' models that tell of documents."""
FOLLOWS = {"max_length_q", "max_length_k"}
"""Arguments that follow from those."""


def documents(
    who: str,
    shape: Sequence[int],
    valid: Valid,
    given: Mapping[str, Any],
    known: Numbers = None,
) -> Numbers:
    """Numbers of the documents, as `Mask` takes them; None where each row is one. given: arguments by name, those of PACKING are read.
    known: numbers that are known already.

    A document begins where any of them says so. Raises ShapeError for what does not fit, UnsupportedError for keys of other
    documents than the queries'.
    """
    position, of_queries, of_keys, numbers = (given.get(name) for name in PACKING)
    if position is not None and position.ndim != 2:
        position = None
    if numbers is not None:
        check_integers(f"{who}: {PACKING[3]}", numbers, 2)
    offsets = of_keys if of_queries is None else of_queries
    found = [z for z in (known, numbers, position) if z is not None]
    if offsets is not None:
        if of_keys is not None and not torch.equal(offsets, of_keys):
            raise UnsupportedError(
                f"{who} does not support cu_seq_lens_k unlike cu_seq_lens_q: queries and keys are of the same documents"
            )
        found.append(Mask.packed(cu_seqlens=offsets).documents)
    if not found:
        return None
    B, T = shape
    for z in found:
        if z.shape[1] != T or z.shape[0] not in (1, B):
            told = [name for name in PACKING if given.get(name) is not None]
            raise ShapeError(
                f"{who}: {' and '.join(told)} must be of {B} rows of {T} tokens, got {list(z.shape)}"
            )
    place = places(found[0], valid)
    at = torch.arange(T, device=found[0].device)
    # padding belongs to the document before it
    latest = at.expand(B, T) if valid is None else (at * valid).cummax(1).values

    def begins(z: Tensor) -> Bool[Tensor, "B T"]:
        return F.pad(z.expand(B, T).gather(1, latest).diff() != 0, (1, 0))

    starts = [begins(z) for z in found if z is not position]
    if position is not None:  # which may count what is absent, or not
        starts.append(begins(position - place) & begins(position - at))
    numbers = (torch.stack(starts).any(0) & (place > 0)).cumsum(1)
    return numbers if bool(numbers.any()) else None


def with_documents(who: str, mask: Mask, B: int, T: int, S: int, given: Mapping[str, Any]) -> Mask:
    """The mask of T queries over S keys, and the documents that the arguments of a model's attention tell of."""
    valid = None if mask.valid is None else mask.valid[:, -T:]
    numbers = documents(who, (B, T), valid, given, mask.documents)
    if numbers is None:
        return mask
    if T != S:
        raise UnsupportedError(
            f"{who} does not support documents in a row of {T} queries over {S} keys. Pass use_cache=False."
        )
    return replace(mask, documents=numbers)


def packed_causal(mask_function: Callable[..., Any]) -> Numbers:
    """The documents that Transformers saw in positions, of a mask function that is the causal order within them and no more."""
    parts = _closed(mask_function).get("mask_functions", ())
    held = {name: value for part in parts for name, value in _closed(part).items()}
    causal = causal_mask_function in (*parts, held.get("mask_function"))
    return held.get("packed_sequence_mask") if causal and len(parts) == 2 else None


def _closed(function: Any) -> Mapping[str, Any]:
    """The values that a function keeps of the one that made it."""
    return inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}
