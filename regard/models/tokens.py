"""Checks of token ids, states and lengths, and positions of tokens among the valid ones."""

from collections.abc import Sequence
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Positions, ShapeError, Streamed, clear, is_dense, shown
from regard.functional.cache import Lengths, advance
from regard.functional.rows import first_places
from regard.nn.fields import outside

IDS = (torch.int64, torch.int32)

Tokens = Int[Tensor, "B T"]
"""Ids of T tokens of each row."""
Valid = Bool[Tensor, "B T"] | None
"""True at tokens, False at padding; None: no padding."""
Numbers = Int[Tensor, "B T"] | None
"""The document or segment of each token; None: one of all."""
Hidden = Float[Tensor, "B T D"]
TokenLogits = Float[Tensor, "B T vocab"]
Source = Int[Tensor, "B S"]
"""Ids of the other sequence: what is translated from, or the first of a pair."""
SourceValid = Bool[Tensor, "B S"] | None


def check_tokens(
    who: str,
    tokens: object,
    valid: Bool[Tensor, "B *axes"] | None,
    weight: Tensor,
    vocab_size: int | None = None,
    axes: Sequence[str] = ("T",),
) -> None:
    """Integer ids [B, T >= 1] within the vocabulary, by default the rows of `weight`, where the model is.

    Values are read where that costs no synchronisation.
    """
    size = len(weight) if vocab_size is None else vocab_size
    device = weight.device
    if not is_dense(tokens) or tokens.ndim != 1 + len(axes) or 0 in tokens.shape[1:]:
        wanted = ", ".join(("B", *(f"{axis} >= 1" for axis in axes)))
        raise ShapeError(f"{who}: tokens must be a tensor of ids [{wanted}], got {shown(tokens)}")
    if tokens.dtype not in IDS:
        raise ShapeError(f"{who}: tokens must be int64 or int32 ids, got {tokens.dtype}")
    if valid is not None:
        check_like(who, "valid", valid, tokens, (torch.bool,))
    if not torch.compiler.is_compiling() and tokens.device != device:
        raise ShapeError(
            f"{who}: tokens are on {tokens.device}, the model on {device}. Move one of them."
        )
    wrong = outside(tokens if valid is None else tokens.masked_fill(~valid, 0), size)
    if wrong is not None:
        raise ShapeError(f"{who}: token id {wrong} is outside the vocabulary (vocab_size {size})")


def check_like(
    who: str, name: str, x: object, tokens: Tensor, dtypes: Sequence[torch.dtype] = IDS
) -> None:
    """x must be of the shape of the tokens, where they are, and of one of these types: integers by default."""
    if (
        not is_dense(x)
        or x.device != tokens.device
        or x.shape != tokens.shape
        or x.dtype not in dtypes
    ):
        words = "int64 or int32" if dtypes == IDS else "boolean"
        raise ShapeError(
            f"{who}: {name} must be {words} {list(tokens.shape)}, where the tokens are, got {shown(x)}"
        )


def check_state(who: str, state: object, kind: type[Streamed], depth: int, tokens: Tensor) -> None:
    """The state must be of this kind, for the rows of these tokens; its first field holds a part for each layer."""
    parts = getattr(state, kind.__match_args__[0], None)
    length = getattr(state, "length", None)
    if (
        not isinstance(state, kind)
        or not isinstance(parts, tuple)
        or len(parts) != depth
        or not isinstance(length, Tensor)
        or length.shape != tokens.shape[:1]
    ):
        raise ShapeError(
            f"{who}: state must come from initial_state or extend of this model, for a batch of {len(tokens)}"
        )


def check_length(who: str, what: str, length: int, most: int | None) -> None:
    if most is not None and length > most:
        raise ShapeError(f"{who}: {what} ({length}) exceeds max_len ({most})")


def longest(lengths: Lengths) -> int:
    """The greatest length of a row; 0 in an empty batch."""
    return int(lengths.max()) if len(lengths) else 0


def looked_up(table: nn.Embedding, tokens: Tokens, valid: Valid) -> Hidden:
    """Rows of the table; zero where `valid` is False, so that no later layer's gradient carries what they hold."""
    if valid is None:
        return table(tokens)
    return clear(table(tokens.masked_fill(~valid, 0)), valid)


def places(tokens: Tokens, valid: Valid, documents: Numbers = None) -> Positions:
    """The position of each token among the valid ones of its row, or of its document."""
    place = columns = first_places(tokens)
    if valid is not None:
        place = (valid.cumsum(1) - 1).clamp_min(0)
    if documents is None:
        return place
    if valid is not None:  # padding belongs to the document before it
        documents = documents.gather(1, (columns * valid).cummax(1).values)
    begins = documents.diff(prepend=documents[:, :1]) != 0
    return place - (place * begins).cummax(1).values


def next_places(
    who: str, tokens: Tokens, state: Any, valid: Valid, most: int | None
) -> Int[Tensor, "B T"]:
    """The positions of the tokens after a state. Raises ShapeError beyond `most` tokens."""
    if most is not None:
        length = longest(advance(state.length, valid, tokens.shape[1]))
        check_length(who, "state length + new tokens", length, most)
    return state.length[:, None] + places(tokens, valid)


class Places(nn.Module):
    """`places` as a module, whose hooks may count tokens that other ranks hold."""

    def forward(self, tokens: Tokens, valid: Valid, documents: Numbers = None) -> Positions:
        return places(tokens, valid, documents)
