"""Parameter-free mathematics by kernel family. q [B H T K], k [B G S K], v [B G S V], as in torch's own SDPA.

Absent tokens (`Mask.valid`) are weighed with zero, and must hold finite numbers: mixers clear them before.
"""

from collections.abc import Callable
from functools import partial, wraps
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from regard.core import OPEN, ShapeError, UnsupportedError, check_mask, check_option, checked
from regard.core.annotations import annotations
from regard.functional.compressed import compressed_attention
from regard.functional.delta import decayed_attention, delta_attention
from regard.functional.efficient import efficient_attention
from regard.functional.fourier import fourier_mixing
from regard.functional.kmeans import routed_attention
from regard.functional.linear import favor_attention, linear_attention, random_feature_attention
from regard.functional.lsh import lsh_attention
from regard.functional.nystrom import nystrom_attention
from regard.functional.pattern import pattern_attention
from regard.functional.projected import projected_attention
from regard.functional.relative import distances, relative_attention
from regard.functional.rows import autocast_dtype, check_impl
from regard.functional.scored import dot_product, luong_attention, scored_attention
from regard.functional.sinkhorn import sinkhorn_attention
from regard.functional.softmax import softmax_attention
from regard.functional.spatial import spatial_mixing
from regard.functional.squared_relu import squared_relu_attention
from regard.functional.synthesizer import synthesizer_attention
from regard.functional.window import window_attention

__all__ = [
    "compressed_attention",
    "decayed_attention",
    "delta_attention",
    "efficient_attention",
    "favor_attention",
    "fourier_mixing",
    "linear_attention",
    "lsh_attention",
    "luong_attention",
    "nystrom_attention",
    "pattern_attention",
    "projected_attention",
    "random_feature_attention",
    "relative_attention",
    "routed_attention",
    "scored_attention",
    "sinkhorn_attention",
    "softmax_attention",
    "spatial_mixing",
    "squared_relu_attention",
    "synthesizer_attention",
    "window_attention",
]


LACKS = {
    "efficient_attention": "pairwise",
    "favor_attention": "pairwise",
    "linear_attention": "pairwise",
    "random_feature_attention": "pairwise",
    "routed_attention": "global_tokens",
    "compressed_attention": "pairwise ragged",
    "fourier_mixing": "causal pairwise ragged",
    "sinkhorn_attention": "pairwise global_tokens ragged",
    "nystrom_attention": "causal pairwise global_tokens ragged",
}
"""What a function cannot do with a mask, beside documents. ragged: valid tokens that do not come first."""

OPERATIONS = {
    "softmax": "compressed projected relative softmax",
    "synthesizer": "synthesizer",
    "favor": "favor",
    "causal sums": "decayed favor linear random_feature",
    "efficient": "efficient",
    "window": "window",
    "pattern": "pattern",
    "sorted": "lsh routed",
    "fourier": "fourier_mixing",
}
"""Operation of `regard.fast` -> the kinds of attention whose `impl` may name what replaces it; of others there is the plain form alone."""

_GROUPS = (lambda a: a.H % a.G == 0), "the heads of q must be a multiple of those of k and v"
_ORDER = (lambda a: a.window is None or a.mask.causal), "window needs Mask(causal=True)"
_NO_MARKS = (
    lambda a: a.window is None or a.mask.global_tokens is None,
    "window is without global tokens: window_attention has them",
)
_WIDTHS = (
    lambda a: a.A == a.C or a.pairs is not dot_product,
    "dot products need q and k of one width",
)
_DECAYS = (
    lambda a: a.log_decay is None or a.log_decay.shape[3:] in ((), (a.K,)),
    "log_decay must be one number a token, or one a channel of k",
)
RULES = {
    "softmax_attention": (
        _GROUPS,
        _ORDER,
        _NO_MARKS,
        (lambda a: not a.exclude_self or a.T == a.S, "exclude_self needs as many queries as keys"),
    ),
    "window_attention": (_GROUPS, (lambda a: a.S >= a.T, "there must be a key for each query")),
    "relative_attention": (
        _ORDER,
        _NO_MARKS,
        (
            lambda a: len(a.terms.r) == len(distances(a.T, a.S, a.mask.causal, a.q.device)),
            "terms.r must be of the distances that `distances` gives",
        ),
    ),
    "pattern_attention": (
        (
            lambda a: (
                a.max_global is None
                or a.mask.global_tokens is None
                or not (a.mask.global_tokens.sum(1) > a.max_global).any()
            ),
            "a row has more global tokens than max_global",
        ),
    ),
    "decayed_attention": (_DECAYS,),
    "delta_attention": (_DECAYS,),
    "random_feature_attention": (
        (lambda a: a.gate is None or a.mask.causal, "a gate needs Mask(causal=True)"),
    ),
    "nystrom_attention": (
        (lambda a: a.cross or a.T == a.S, "queries that are not the keys need cross=True"),
    ),
    "scored_attention": (_WIDTHS,),
    "luong_attention": (_WIDTHS,),
    "sinkhorn_attention": (
        (lambda a: a.N * a.block_size >= a.T, "the blocks of sorting must cover the tokens"),
        (lambda a: not (a.sort_cut and a.mask.causal), "sort_cut has no causal order"),
    ),
}
"""What arguments must be to each other: what holds, and the words for it."""


def _checked(function: Callable) -> Callable:
    """The function with its arguments checked. Mixers, who check requests of their own, call the one in its own file."""
    who = function.__name__
    served = checked(function, partial(_check_together, who, annotations(function)), counts=True)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        mask = kwargs.get("mask", OPEN)
        for field in ("documents", *LACKS.get(who, "").replace("ragged", "").split()):
            none = False if field == "causal" else None
            if getattr(mask, field, none) is not none:
                raise UnsupportedError(
                    f"{who} does not support {field}: give the mask to a mixer, or each document as a row of its own."
                )
        return served(*args, **kwargs)

    return call


def _check_together(
    who: str, types: dict[str, Any], given: dict[str, Any], tensors: list[Tensor]
) -> None:
    """Tensors of one device and type, a mask that fits, and what the function's own rules say."""
    for name, value in given.items():
        _check_fields(f"{who}: {name}", value)
    kind = who.removesuffix("_attention")
    has = (operation for operation, kinds in OPERATIONS.items() if kind in kinds.split())
    check_impl(who, given.get("impl", "auto"), *has)
    devices = {z.device for z in tensors}
    dtypes = {z.dtype for z in tensors if z.is_floating_point()}
    if len(devices) > 1 or (len(dtypes) > 1 and autocast_dtype(tensors[0]) is None):
        kinds = ", ".join(map(str, devices if len(devices) > 1 else dtypes))
        raise ShapeError(f"{who}: its tensors are of {kinds}. Move or convert some.")
    sizes: dict[str, int] = {}
    for name, value in given.items():
        if letters := getattr(types[name], "dim_str", ""):
            sizes |= zip(letters.split(), value.shape, strict="*" not in letters)
    a = SimpleNamespace(**{"S": sizes.get("T"), **sizes, **given})
    if "mask" in given:
        _check_given_mask(who, a, sizes.get("H"), tensors[0].device)
    for holds, words in RULES.get(who, ()):
        if not holds(a):
            raise ShapeError(f"{who}: {words}")


def _check_fields(who: str, value: Any) -> None:
    """The fields of a NamedTuple, and of those in it."""
    for field in getattr(value, "_fields", ()):
        inner = getattr(value, field)
        check_option(who, field, inner, annotations(value.__class__)[field])
        _check_fields(f"{who}.{field}", inner)


def _check_given_mask(who: str, a: SimpleNamespace, H: int | None, device: torch.device) -> None:
    """The mask is one that a caller may give, fits B, T and S, and asks for what the function can."""
    mask = a.mask
    if mask.shift is not None:
        raise ShapeError(f"{who}: mask.shift is filled in by mixers. Leave it out.")
    check_mask(who, mask, a.B, a.T, a.S, H, device=device)
    valid = None if mask.compact or "ragged" not in LACKS.get(who, "") else mask.valid
    if valid is not None and bool((valid[:, 1:] & ~valid[:, :-1]).any()):
        raise UnsupportedError(
            f"{who} needs valid tokens to come first in each row. A mixer moves them there."
        )


globals().update({name: _checked(globals()[name]) for name in __all__})
