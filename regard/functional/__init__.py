"""Parameter-free mathematics by kernel family. q [B H T K], k [B G S K], v [B G S V], as in torch's own SDPA."""

from regard.functional.linear import linear_attention
from regard.functional.pattern import pattern_attention
from regard.functional.softmax import softmax_attention

__all__ = [
    "linear_attention",
    "pattern_attention",
    "softmax_attention",
]
