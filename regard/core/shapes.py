"""Shape letters, and the checks that every request passes once.

B batch, T queries, S keys, D model width, H heads, G key/value heads, K query-key width, V value width,
F feed-forward width, C chunk, N chunks, W window, M features, landmarks or memory, E experts.
"""

import math
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.core.errors import OptionError, ShapeError, shown

LARGEST = 2**31 - 1
"""No size may exceed it."""


def check_divisible(**sizes: int) -> None:
    """`check_divisible(dim=65, num_heads=8)` -> "dim (65) must be divisible by num_heads (8)"."""
    (big, total), (small, part) = sizes.items()
    if total % part:
        raise OptionError(f"{big} ({total}) must be divisible by {small} ({part})")


def check_positive(**sizes: int) -> None:
    """`check_positive(window_size=0)` -> "window_size (0) must be a positive integer"."""
    for name, size in sizes.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 1:
            raise OptionError(f"{name} ({shown(size)}) must be a positive integer")


def check_batch_size(size: int) -> None:
    """`check_batch_size(-1)` -> "batch_size (-1) must be an integer of at least 0": an empty batch is one."""
    if type(size) is not int or size < 0:
        raise OptionError(f"batch_size ({shown(size)}) must be an integer of at least 0")
    if size > LARGEST:
        raise OptionError(f"batch_size ({shown(size)}) must be at most {LARGEST}")


def check_finite(**numbers: float) -> None:
    """`check_finite(scale=nan)` -> "scale (nan) must be a finite number"."""
    for name, number in numbers.items():
        if not is_number(number) or not math.isfinite(number):
            raise OptionError(f"{name} ({shown(number)}) must be a finite number")


def check_flag(**flags: bool) -> None:
    """`check_flag(norm_first="x")` -> "norm_first ('x') must be True or False"."""
    for name, flag in flags.items():
        if not isinstance(flag, bool):
            raise OptionError(f"{name} ({shown(flag)}) must be True or False")


def check_mapping(name: str, options: object) -> Mapping[str, Any]:
    """A mapping of option names, which is returned."""
    if not isinstance(options, Mapping):
        raise OptionError(f"{name} must be a mapping of option names, got {type(options).__name__}")
    for option in options:
        if not isinstance(option, str):
            raise OptionError(
                f"{name} must be a mapping of option names, got the key {shown(option)}"
            )
    return options


def is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def check_tokens(who: str, name: str, x: object, dim: int) -> None:
    """x must be a floating tensor [B, T >= 1, dim]."""
    if not isinstance(x, Tensor):
        raise ShapeError(f"{who}: {name} must be a tensor [B, T, {dim}], got {type(x).__name__}")
    if not is_dense(x):
        raise ShapeError(
            f"{who}: {name} must be dense, got {layout(x)}. Use .to_dense(), or pad what is nested."
        )
    shape = x.shape
    if len(shape) != 3 or shape[2] != dim:
        raise ShapeError(f"{who}: {name} must have shape [B, T, {dim}], got {list(shape)}")
    if shape[1] < 1:
        raise ShapeError(f"{who}: {name} must hold at least one token, got {list(shape)}")
    if not x.is_floating_point():
        raise ShapeError(
            f"{who}: {name} must be floating point, got {x.dtype}. Embed token ids first."
        )


def is_dense(x: Tensor) -> bool:
    """Neither sparse nor nested."""
    return x.layout == torch.strided and not x.is_nested


def layout(x: Tensor) -> str:
    return "a nested tensor" if x.is_nested else str(x.layout)


def first_parameter(module: nn.Module) -> Tensor | None:
    """The module's first parameter, without the sets of names that `module.parameters()` builds: they slow a decoding step."""
    for parameter in module._parameters.values():
        if parameter is not None:
            return parameter
    for child in module._modules.values():
        found = None if child is None else first_parameter(child)
        if found is not None:
            return found
    return None


def check_place(who: str, name: str, x: Tensor, weight: Tensor | None) -> None:
    """x must be where the module's weight is, and of its type, if that is a floating one (None: it has no weight)."""
    if weight is None or (weight.device == x.device and weight.dtype == x.dtype):
        return
    if torch.compiler.is_compiling():
        return
    if weight.device != x.device:
        raise ShapeError(
            f"{who}: {name} is on {x.device}, the module on {weight.device}. Move one of them."
        )
    unlike = weight.is_floating_point() and weight.dtype != x.dtype
    if unlike and not torch.is_autocast_enabled(x.device.type):
        raise ShapeError(
            f"{who}: {name} has dtype {x.dtype}, the module {weight.dtype}. Convert one, or use autocast."
        )
