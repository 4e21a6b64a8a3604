"""Checks of token ids, and positions of tokens among the valid ones."""

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core import Mask, ShapeError
from regard.core.shapes import is_dense, layout


def check_tokens(
    who: str,
    tokens: object,
    valid: Bool[Tensor, "B T"] | None,
    *,
    vocab_size: int,
    device: torch.device,
) -> None:
    """Integer ids [B, T >= 1] within the vocabulary; values are read where that costs no synchronisation."""
    if not isinstance(tokens, Tensor) or not is_dense(tokens):
        got = layout(tokens) if isinstance(tokens, Tensor) else type(tokens).__name__
        raise ShapeError(f"{who}: tokens must be a tensor of ids [B, T >= 1], got {got}")
    if tokens.dim() != 2 or tokens.shape[1] < 1:
        got = str(list(tokens.shape))
        raise ShapeError(f"{who}: tokens must be a tensor of ids [B, T >= 1], got {got}")
    if tokens.dtype not in (torch.int64, torch.int32):
        raise ShapeError(f"{who}: tokens must be int64 or int32 ids, got {tokens.dtype}")
    if valid is not None:
        B, T = tokens.shape
        Mask(valid=valid).check(who, B, T, T, device=tokens.device)
    if torch.compiler.is_compiling():
        return
    if tokens.device != device:
        raise ShapeError(
            f"{who}: tokens are on {tokens.device}, the model on {device}. Move one of them."
        )
    if device.type != "cpu":
        return
    ids = tokens if valid is None else tokens[valid]
    if not ids.numel():
        return
    low, high = int(ids.min()), int(ids.max())
    if low < 0 or high >= vocab_size:
        raise ShapeError(
            f"{who}: token id {low if low < 0 else high} is outside the vocabulary "
            f"(vocab_size {vocab_size})"
        )


def longest(lengths: Int[Tensor, "B"]) -> int:
    """The greatest length of a row; 0 in an empty batch."""
    return int(lengths.max()) if len(lengths) else 0


def counts_tokens(length: object, tokens: Tensor) -> bool:
    """True if `length` can be a state's: an integer for each row of the tokens, where they are."""
    if not isinstance(length, Tensor) or not is_dense(length) or length.dtype != torch.int64:
        return False
    return length.shape == tokens.shape[:1] and length.device == tokens.device


def places(tokens: Int[Tensor, "B T"], valid: Bool[Tensor, "B T"] | None) -> Int[Tensor, "b T"]:
    """The position of each token among the valid ones of its row."""
    if valid is None:
        return torch.arange(tokens.shape[1], device=tokens.device)[None]
    return (valid.cumsum(1) - 1).clamp(min=0)
