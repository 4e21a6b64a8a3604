"""Mask: who may take part in the mixing. True means *may take part*, everywhere."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, fields
from functools import reduce
from operator import and_

import torch
from jaxtyping import Bool, Int
from torch import Tensor
from torch.utils import _pytree as pytree

from regard.core.errors import OptionError, ShapeError, UnknownNameError, outline, shown
from regard.core.memory import require_memory
from regard.core.shapes import Marks, Positions, is_dense

_TENSORS = ("valid", "pairwise", "global_tokens", "documents", "shift")
NUMBERS = ("documents", "shift")
"""Fields that hold integers."""
INTEGERS = (torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64)


@dataclass(frozen=True, eq=False)
class Mask:
    """One small value that is handed whole to the kernel.

    causal: query i sees keys j <= i + (S - T): the last query is aligned to the last key.
    valid [B S]: tokens that exist; the others are as if absent. With a context it belongs to the context.
    pairwise [B|1 H|1 T S]: pairs that are allowed.
    global_tokens [B S]: tokens that see all and are seen by all (within causal, valid and pairwise).
    documents [B S]: integers; tokens of unlike numbers are as if in rows of their own, in which positions, blocks and
    recurrences start anew. `Mixer` takes documents apart, so that no kernel receives them.

    Two fields are filled in by `Mixer`, not by callers: `compact` says that every row's valid tokens come
    first; `shift` [B] replaces S - T in the causal rule when rows of a context have different lengths.
    """

    causal: bool = False
    valid: Marks | None = None
    pairwise: Bool[Tensor, "b h T S"] | None = None
    global_tokens: Marks | None = None
    documents: Int[Tensor, "B S"] | None = None
    compact: bool = False
    shift: Int[Tensor, "B"] | None = None

    def __post_init__(self):
        if not isinstance(self.causal, bool):
            raise OptionError(
                f"Mask: causal ({shown(self.causal)}) must be True or False. Pairs that differ: pairwise="
            )
        if not isinstance(self.compact, bool):
            raise OptionError("Mask: compact is filled in by the mixer. Leave it out.")
        for name in _TENSORS:
            value = getattr(self, name)
            if not (value is None or isinstance(value, Tensor)):
                kind = (
                    "an integer tensor"
                    if name in NUMBERS
                    else "a boolean tensor (True = may take part)"
                )
                raise ShapeError(f"Mask: {name} must be {kind}, got {type(value).__name__}")

    @classmethod
    def packed(
        cls,
        *,
        cu_seqlens: Int[Tensor, "N+1"] | None = None,
        position_ids: Int[Tensor, "B S"] | None = None,
        causal: bool = False,
    ) -> "Mask":
        """The mask of packed documents, from either of the two ways in which others write it.

        cu_seqlens [N+1]: offsets 0, ..., S of the documents of one row. position_ids [B S]: positions, which restart at 0.
        Raises ShapeError for offsets that do not rise from 0 and positions that do not count from 0, OptionError unless one of the two is given.
        """
        if (cu_seqlens is None) == (position_ids is None):
            raise OptionError("Mask.packed takes one of cu_seqlens and position_ids")
        if position_ids is not None:
            check_integers("Mask.packed: position_ids", position_ids, 2, read=True)
            begins = position_ids == 0
            if not (begins[:, :1].all() and (begins[:, 1:] | (position_ids.diff() == 1)).all()):
                raise ShapeError(
                    "Mask.packed: position_ids must count 0, 1, 2, ... in each document, and begin a row with 0"
                )
            return cls(causal, documents=begins.cumsum(1))
        check_integers("Mask.packed: cu_seqlens", cu_seqlens, 1, read=True)
        assert cu_seqlens is not None
        lengths = cu_seqlens.long().diff()
        if (
            len(cu_seqlens) < 2
            or cu_seqlens[0] != 0
            or (cu_seqlens < 0).any()
            or (lengths < 0).any()
        ):
            raise ShapeError(
                f"Mask.packed: cu_seqlens must rise from 0 to the number of tokens, got {shown(cu_seqlens.tolist())}"
            )
        numbers = torch.arange(len(lengths), device=lengths.device)
        size = int(cu_seqlens[-1])
        what = f"a row of {size} tokens"
        instead = "Give the offsets of one row."
        require_memory("Mask.packed", what, 8 * size, lengths.device, instead)
        return cls(causal, documents=numbers.repeat_interleave(lengths)[None])

    def __repr__(self) -> str:
        values = vars(self).items()
        return f"Mask({outline({k: v for k, v in values if v is not None and v is not False})})"

    def last_key(self, T: int, S: int, device: torch.device | None = None) -> Positions:
        """Index of the last key that each query may see under `causal`, [1 T] or [B T]; below 0: none."""
        queries = torch.arange(T, device=device)
        if self.shift is not None:
            return queries + self.shift[:, None]
        return queries[None] + (S - T)

    def dense(
        self,
        T: int,
        S: int,
        *,
        device: torch.device | None = None,
        pattern: Bool[Tensor, "_ _ _ S"] | None = None,
        rows: slice | None = None,
        cols: slice | None = None,
    ) -> Bool[Tensor, "b h t s"]:
        """The allowed pairs as one boolean tensor; axes that do not vary have size 1.

        `pattern` is the mechanism's own set of pairs (default: all), widened by global tokens before the
        restrictions apply. `rows` and `cols` restrict the result to these queries and keys, so that callers can go block by
        block; a pattern is then that of the block. T and S are believed to be those of the request that was checked.
        Raises ShapeError for rows and cols that are no slices.
        """
        wrong = [z for z in (rows, cols) if not (isinstance(z, slice) or z is None)]
        if wrong:
            raise ShapeError(f"rows and cols must be slices, got {shown(wrong[0])}")
        # Not `is None`, which would make a slice's sizes constants of a compiled program.
        rows = rows if isinstance(rows, slice) else slice(0, T)
        cols = cols if isinstance(cols, slice) else slice(0, S)
        device = next(
            (t.device for t in (self.valid, self.pairwise, pattern) if t is not None), device
        )
        restrictions = []
        if pattern is not None:
            if self.global_tokens is not None:
                seen_by_all = self.global_tokens[:, None, None, cols]
                own = self.global_tokens[:, S - T :]  # the last query stands at the last key
                pattern = pattern | seen_by_all | own[:, None, rows, None]
            restrictions.append(pattern)
        if self.causal:
            ahead = S - T if self.shift is None else self.shift[:, None, None, None]
            last = torch.arange(T, device=device)[None, None, rows, None] + ahead
            restrictions.append(torch.arange(S, device=device)[cols] <= last)
        if self.valid is not None:
            restrictions.append(self.valid[:, None, None, cols])
        if self.pairwise is not None:
            restrictions.append(self.pairwise[:, :, rows, cols])
        if self.documents is not None:
            same = self.documents[:, rows, None] == self.documents[:, None, cols]
            restrictions.append(same[:, None])
        if not restrictions:
            return torch.ones(S, dtype=torch.bool, device=device)[cols][None, None, None]
        return reduce(and_, restrictions)


def check_integers(what: str, value: object, dims: int, read: bool = False) -> None:
    """read: the numbers are needed, which tensors on the meta device have not."""
    if not isinstance(value, Tensor) or value.dtype not in INTEGERS or value.ndim != dims:
        got = shown(value)
        if isinstance(value, Tensor) and not value.is_nested:
            got = f"{value.dtype} {list(value.shape)}"
        axes = "[B, S]" if dims == 2 else "[N + 1]"
        raise ShapeError(f"{what} must be an integer tensor {axes}, got {got}")
    if read and (value.is_meta or not is_dense(value)):
        raise ShapeError(f"{what} is read, and must be dense and not on the meta device")


OPEN = Mask()
"""Everything may take part."""
CAUSAL = Mask(causal=True)
"""What came before may take part, and the query itself."""

_STATIC = tuple(field.name for field in fields(Mask) if field.name not in _TENSORS)


def _flatten(mask: Mask):
    return [getattr(mask, name) for name in _TENSORS], tuple(
        getattr(mask, name) for name in _STATIC
    )


def _flatten_with_keys(mask: Mask):
    values, static = _flatten(mask)
    return list(zip(map(pytree.GetAttrKey, _TENSORS), values, strict=True)), static


def _unflatten(values, static) -> Mask:
    """Leaves are of any type: a traced program's are placeholders."""
    mask = object.__new__(Mask)
    vars(mask).update(zip((*_STATIC, *_TENSORS), (*static, *values), strict=True))
    return mask


pytree.register_pytree_node(
    Mask,
    _flatten,
    _unflatten,
    serialized_type_name="regard.Mask",
    to_dumpable_context=list,
    from_dumpable_context=tuple,
    flatten_with_keys_fn=_flatten_with_keys,
)


ELSEWHERE = {
    "is_causal": "Mask(causal=True)",
    "key_padding_mask": "Mask(valid=...), True where a token exists",
    "attention_mask": "Mask(valid=...), True where a token exists",
    "attn_mask": "Mask(pairwise=...) [B|1 H|1 T S], True where a query may see a key",
    "src_mask": "Mask(pairwise=...) [B|1 H|1 T S], True where a query may see a key",
}
"""Argument of other libraries -> the mask that says it here."""


def check_arguments(who: str, wrong: Sequence, unknown: Collection[str]) -> None:
    """Raise OptionError or UnknownNameError: a mixer takes no second argument by position, and none of these names."""
    masks = {field.name: f"Mask({field.name}=...)" for field in fields(Mask)} | ELSEWHERE
    for name in unknown:
        if name in masks:
            raise OptionError(
                f"{who} does not take {name}: one value says who may take part. Pass mask={masks[name]}."
            )
        raise UnknownNameError(f"argument of {who}", name, ("x", "context", "mask"))
    name = "context" if isinstance(wrong[0], Tensor) else "mask"
    raise OptionError(
        f"{who} does not take {shown(wrong[0])} by position: only x comes without a name. Pass {name}=."
    )
