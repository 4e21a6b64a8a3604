"""Tensors printed as shapes: `State(k=[2 4 16 8] bfloat16, length=[2])`."""

from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

Tuple = TypeVar("Tuple", bound=type[tuple[Any, ...]])

USUAL = {torch.float32, torch.int64, torch.bool}
"""Types that are not printed."""


def outline(fields: Mapping[str, object]) -> str:
    """`k=[2 4 16 8], length=[2]`; a type other than float32, int64 and bool, and a device other than the CPU, are added."""
    return ", ".join(f"{name}={_outlined(value)}" for name, value in fields.items())


def prints_shapes(cls: Tuple) -> Tuple:
    """The class of named tuples, which now prints its tensors as shapes unless it has a `__repr__` of its own."""
    if cls.__repr__.__module__ == "collections":
        cls.__repr__ = _repr  # type: ignore[method-assign]
    return cls


def _repr(self: Any) -> str:
    return f"{type(self).__name__}({outline(self._asdict())})"


def _outlined(value: object) -> str:
    if type(value) in (tuple, list):
        return f"({', '.join(map(_outlined, value))})"  # type: ignore[call-overload]
    if not isinstance(value, Tensor):
        return repr(value)
    words = ["nested" if value.is_nested else f"[{' '.join(map(str, value.shape))}]"]
    if value.dtype not in USUAL:
        words.append(str(value.dtype).removeprefix("torch."))
    if value.device.type != "cpu":
        words.append(str(value.device))
    return " ".join(words)
