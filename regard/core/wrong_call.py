"""A call with arguments that `Mixer.forward` does not take, told with what to write instead."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Any

from torch import Tensor

from regard.core.errors import OptionError, UnknownNameError, shown
from regard.core.mask import Mask

ELSEWHERE = {
    "is_causal": "Mask(causal=True)",
    "key_padding_mask": "Mask(valid=...), True where a token exists",
    "attention_mask": "Mask(valid=...), True where a token exists",
    "attn_mask": "Mask(pairwise=...) [B|1 H|1 T S], True where a query may see a key",
    "src_mask": "Mask(pairwise=...) [B|1 H|1 T S], True where a query may see a key",
}
"""Argument of other libraries -> the mask that says it here."""


def check_arguments(
    who: str, forward: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Raise OptionError or UnknownNameError if `forward` does not take these arguments."""
    signature = inspect.signature(forward)
    known = signature.parameters
    masks = {field.name: f"Mask({field.name}=...)" for field in fields(Mask)} | ELSEWHERE
    for name in kwargs.keys() - known.keys():
        if name in masks:
            raise OptionError(
                f"{who} does not take {name}: one value says who may take part. Pass mask={masks[name]}."
            ) from None
        raise UnknownNameError(f"argument of {who}", name, known) from None
    if len(args) > 1:
        name = "context" if isinstance(args[1], Tensor) else "mask"
        raise OptionError(
            f"{who} does not take {shown(args[1])} by position: only x comes without a name. Pass {name}=."
        ) from None
    try:
        signature.bind(*args, **kwargs)
    except TypeError as error:
        raise OptionError(f"{who}: {error}. Pass x, and context= and mask= by name.") from None
