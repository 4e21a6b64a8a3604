"""Masks between Transformers and this library, and packed rows as it writes them: positions that restart, offsets of documents, numbers.

DataCollatorWithFlattening(return_flash_attn_kwargs=True, return_seq_idx=True)      gives all three
"""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Bool
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from transformers.masking_utils import bidirectional_mask_function, causal_mask_function, sdpa_mask

from regard.core import (
    Marks,
    Mask,
    Options,
    ShapeError,
    UnsupportedError,
    check_integers,
    compaction,
    permute,
)
from regard.hf.sources import keys_of_others
from regard.models.tokens import Numbers, Valid, places

OFFSETS = ("cu_seq_lens_q", "cu_seq_lens_k")
PACKING = ("position_ids", *OFFSETS, "seq_idx")
"""Arguments of Transformers' models that tell of documents."""
FOLLOWS = {"max_length_q", "max_length_k"}
"""Arguments that follow from those."""
Rule = Callable  # a mask function of Transformers


def predicted(labels: Tensor, valid: Marks, numbers: Numbers) -> Tensor:
    """Each label right behind the valid token that predicts it; none predicts the first of a row or of a document."""
    source, back, there = compaction(valid)
    labels = permute(labels, source).masked_fill(~there, -100)
    if numbers is not None:
        starts = F.pad(permute(numbers, source).diff() != 0, (1, 0))
        labels = labels.masked_fill(starts, -100)
    after = permute(F.pad(labels[:, 1:], (0, 1), value=-100), back).masked_fill(~valid, -100)
    return F.pad(after[:, :-1], (1, 0), value=-100)


def documents(
    who: str, shape: Sequence[int], valid: Valid, given: Options, known: Numbers = None
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
    return numbers if numbers.any() else None


def with_documents(who: str, mask: Mask, B: int, T: int, S: int, given: Options) -> Mask:
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


def packed_causal(mask_function: Rule) -> Numbers:
    """The documents that Transformers saw in positions, of a mask function that is the causal order within them and no more."""
    parts = _closed(mask_function).get("mask_functions", ())
    held = {name: value for part in parts for name, value in _closed(part).items()}
    causal = causal_mask_function in (*parts, held.get("mask_function"))
    return held.get("packed_sequence_mask") if causal and len(parts) == 2 else None


def _closed(function: Any) -> Options:
    """The values that a function keeps of the one that made it."""
    return inspect.getclosurevars(function).nonlocals if inspect.isfunction(function) else {}


class TokenMask(Tensor):
    """A `regard.Mask` shaped as [B 1 T S], which `token_mask` passes through a model to the attention function.

    Its elements are not those of the mask, so that nothing of size T S is stored. A model that reads or changes them
    would lose the mask: that raises UnsupportedError.
    """

    mask: Mask
    num_keys: int | None

    @classmethod
    def make(
        cls, mask: Mask, shape: tuple[int, ...], num_keys: int | None, device: Any
    ) -> "TokenMask":
        """num_keys: how many of the keys come up to the last query; None where this is not known."""
        made = torch.zeros((), dtype=torch.bool, device=device).expand(shape).as_subclass(cls)
        made.mask = mask
        made.num_keys = num_keys
        return made

    @classmethod
    def __torch_function__(cls, function, types, args=(), kwargs=None):
        name = getattr(function, "__name__", "")
        if name not in _READS | _MOVES:
            raise UnsupportedError(
                f"attn_implementation='regard_...' does not support {name} on its mask: this model changes masks "
                "itself, or is compiled. Use attn_implementation='eager'."
            )
        with torch._C.DisableTorchFunctionSubclass():
            result = function(*args, **(kwargs or {}))
        if name not in _MOVES:
            return result
        moved, device = args[0], result.device
        mask = pytree.tree_map_only(Tensor, lambda part: part.to(device), moved.mask)
        return cls.make(mask, tuple(moved.shape), moved.num_keys, device)


_READS = {"__get__", "dim", "size", "is_floating_point", "numel", "__len__", "__repr__"}
_MOVES = {"to", "cuda", "cpu", "detach", "clone", "contiguous"}


def token_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    q_offset: int | Tensor = 0,
    kv_offset: int = 0,
    mask_function: Rule = causal_mask_function,
    attention_mask: Tensor | None = None,
    use_vmap: bool = False,
    device: torch.device | str = "cpu",
    **unused_by_this_implementation: Any,
) -> TokenMask:
    """The mask function of Transformers' AttentionMaskInterface: padding, the causal order and packed documents stay what they are.

    Any other rule (sliding windows, a model's own) becomes allowed pairs beside them.
    """
    numbers = packed_causal(mask_function)
    causal = numbers is not None or _is_causal(mask_function)
    known = (causal_mask_function, bidirectional_mask_function)
    num_keys = int(q_offset) + q_length - kv_offset if causal else kv_length
    pairwise = None
    if kv_offset or not (numbers is not None or mask_function in known):
        pairwise = sdpa_mask(
            batch_size,
            q_length,
            kv_length,
            q_offset=q_offset,  # type: ignore[arg-type,unused-ignore]  # a tensor with a static cache
            kv_offset=kv_offset,
            mask_function=mask_function,
            attention_mask=attention_mask,
            allow_is_causal_skip=False,
            use_vmap=use_vmap,
            device=device,
        )[..., :num_keys]  # type: ignore[index]  # it is skipped where that is allowed alone
    valid = None if attention_mask is None else attention_mask[:, kv_offset:][:, :num_keys]
    if valid is not None:
        valid = None if valid.all() else F.pad(valid, (0, max(0, num_keys - valid.shape[1])))
    mask = Mask(causal=causal, valid=valid, pairwise=pairwise, documents=numbers)
    return TokenMask.make(mask, (batch_size, 1, q_length, kv_length), num_keys, device)


def _is_causal(mask_function: Rule) -> bool:
    """True of the causal order, alone or among rules that must all hold."""
    every = getattr(mask_function, "__name__", "") == "and_mask"
    parts = _closed(mask_function).get("mask_functions", ()) if every else ()
    return mask_function is causal_mask_function or any(map(_is_causal, parts))


def request(
    module: nn.Module, attention_mask: Tensor | None, is_causal: bool | None, query: Tensor, S: int
) -> tuple[Mask, int]:
    """The mask, and how many of the keys take part."""
    if isinstance(attention_mask, TokenMask):
        return attention_mask.mask, attention_mask.num_keys or S
    if attention_mask is None:
        causal = getattr(module, "is_causal", True) if is_causal is None else is_causal
        return Mask(causal=bool(causal) and not keys_of_others(module)), S
    if attention_mask.ndim != 4:
        raise ShapeError(f"a mask must have shape [B, 1, T, S], got {list(attention_mask.shape)}")
    allowed = attention_mask
    if allowed.dtype != torch.bool:
        allowed = attention_mask == 0
        if not (allowed | (attention_mask <= torch.finfo(query.dtype).min / 2)).all():
            raise UnsupportedError(
                "attn_implementation='regard_...' does not support masks that are added to scores: a mechanism need "
                "not have any"
            )
    T = allowed.shape[2]
    if allowed.shape[1] == T == 1:
        return Mask(valid=allowed[:, 0, 0].expand(query.shape[0], -1)), S
    ordered = getattr(module, "is_causal", False) and 1 < T <= S
    causal = ordered and not allowed.triu(S - T + 1).any()
    return Mask(causal=causal, pairwise=allowed), S
