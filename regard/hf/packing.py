"""Packed rows as Transformers writes them: positions that restart, offsets of a row's documents, or a number for each token.

DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)      gives all three
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor
from transformers.masking_utils import causal_mask_function

from regard.core import Mask, ShapeError, UnsupportedError

OFFSETS = ("cu_seq_lens_q", "cu_seq_lens_k")
PACKING = ("position_ids", *OFFSETS, "seq_idx")
"""Arguments of Transformers' models that tell of documents."""
FOLLOWS = {"max_length_q", "max_length_k"}
"""Arguments that follow from those."""


def documents(
    who: str, shape: Sequence[int], valid: Bool[Tensor, "B T"] | None, given: Mapping[str, Any]
) -> Int[Tensor, "B T"] | None:
    """Numbers of the documents, as `Mask` takes them; None where each row is one. given: arguments by name, those of PACKING are read.

    A document begins where any of them says so. Raises ShapeError for what does not fit, UnsupportedError for keys of other
    documents than the queries'.
    """
    position, of_queries, of_keys, numbers = (given.get(name) for name in PACKING)
    offsets = of_keys if of_queries is None else of_queries
    found = [] if numbers is None else [numbers]
    if offsets is not None:
        if of_keys is not None and not torch.equal(offsets, of_keys):
            raise UnsupportedError(
                f"{who} does not support cu_seq_lens_k unlike cu_seq_lens_q: queries and keys are of the same documents"
            )
        found.append(Mask.packed(cu_seqlens=offsets).documents)
    if position is not None and position.dim() == 2:
        found.append(position)
    if not found:
        return None
    B, T = shape
    for z in found:
        if z.shape[1] != T or z.shape[0] not in (1, B):
            told = [name for name in PACKING if given.get(name) is not None]
            raise ShapeError(
                f"{who}: {' and '.join(told)} must be of {B} rows of {T} tokens, got {list(z.shape)}"
            )
    if found[-1] is position:  # less its place in the row, a position is the same in a document
        place = torch.arange(T, device=position.device) if valid is None else valid.cumsum(1)
        found[-1] = position - place
    found = [z for z in found if _several(z, valid)]
    if len(found) > 1:
        starts = torch.stack([F.pad(z.diff() != 0, (1, 0)).expand(B, T) for z in found])
        return starts.any(0).cumsum(1)
    return found[0].expand(B, T) if found else None


def _several(z: Int[Tensor, "b T"], valid: Bool[Tensor, "B T"] | None) -> bool:
    """True if valid tokens of a row have unlike numbers."""
    if valid is None:
        return bool((z != z[:, :1]).any())
    z = z.expand(valid.shape)
    most, least = (torch.iinfo(z.dtype).max, torch.iinfo(z.dtype).min)
    return bool((z.masked_fill(~valid, most).amin(1) < z.masked_fill(~valid, least).amax(1)).any())


def with_documents(who: str, mask: Mask, B: int, T: int, S: int, given: Mapping[str, Any]) -> Mask:
    """The mask of T queries over S keys, and the documents that the arguments of a model's attention tell of."""
    names = PACKING if mask.documents is None else PACKING[1:]  # positions gave those of the mask
    told = {name: given[name] for name in names if given.get(name) is not None}
    if not told:
        return mask
    if mask.documents is not None:
        told["position_ids"] = mask.documents + torch.arange(T, device=mask.documents.device)
    numbers = documents(who, (B, T), None if mask.valid is None else mask.valid[:, -T:], told)
    if numbers is None:
        return mask
    if T != S:
        raise UnsupportedError(
            f"{who} does not support documents in a row of {T} queries over {S} keys. Pass use_cache=False."
        )
    return replace(mask, documents=numbers)


def packed_causal(mask_function: Callable[..., Any]) -> Int[Tensor, "B T"] | None:
    """The documents that Transformers saw in positions, of a mask function that is the causal order within them and no more."""
    held: dict[str, Any] = {}
    parts = _closed(mask_function).get("mask_functions", ())
    for part in parts:
        held |= _closed(part) or {"mask_function": part}
    causal = len(parts) == 2 and held.get("mask_function") is causal_mask_function
    return held.get("packed_sequence_mask") if causal else None


def _closed(function: Any) -> dict[str, Any]:
    """The values that a function keeps of the one that made it."""
    names = getattr(getattr(function, "__code__", None), "co_freevars", ())
    return (
        {
            name: cell.cell_contents
            for name, cell in zip(names, function.__closure__ or (), strict=True)
        }
        if names
        else {}
    )
