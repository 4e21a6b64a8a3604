"""Parameter-free mathematics by kernel family. q [B H T K], k [B G S K], v [B G S V], as in torch's own SDPA."""

from collections.abc import Callable
from functools import wraps
from typing import Any

from regard.core.errors import UnsupportedError
from regard.functional.compressed import compressed_attention
from regard.functional.efficient import efficient_attention
from regard.functional.fourier import fourier_mixing
from regard.functional.kmeans import routed_attention
from regard.functional.linear import (
    favor_attention,
    linear_attention,
    random_feature_attention,
)
from regard.functional.lsh import lsh_attention
from regard.functional.pattern import pattern_attention
from regard.functional.projected import projected_attention
from regard.functional.relative import relative_attention
from regard.functional.scored import luong_attention, scored_attention
from regard.functional.sinkhorn import sinkhorn_attention
from regard.functional.softmax import softmax_attention
from regard.functional.spatial import spatial_mixing
from regard.functional.squared_relu import squared_relu_attention
from regard.functional.synthesizer import synthesizer_attention
from regard.functional.window import window_attention

__all__ = [
    "compressed_attention",
    "efficient_attention",
    "favor_attention",
    "fourier_mixing",
    "linear_attention",
    "lsh_attention",
    "luong_attention",
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


def _of_rows(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function, which refuses documents. Mixers, who take them apart, call the one in its own file."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if getattr(kwargs.get("mask"), "documents", None) is not None:
            raise UnsupportedError(
                f"{function.__name__} does not support documents: mixers take them apart. Give each as a row of its own, or the "
                "mask to a mixer."
            )
        return function(*args, **kwargs)

    return call


globals().update({name: _of_rows(globals()[name]) for name in __all__})
