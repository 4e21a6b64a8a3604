"""Shared parts with parameters."""

from regard.core import check_calls
from regard.nn.after_step import after_step, call_after_step
from regard.nn.coord_conv import CoordConv2d
from regard.nn.disagreement import disagreement
from regard.nn.feed_forward import FEED_FORWARDS, Chunked, FeedForward
from regard.nn.heads import Heads
from regard.nn.length_projection import LengthProjection
from regard.nn.multihead_attention import MultiheadAttention
from regard.nn.norm import NORMS, LayerNorm, RMSNorm, ScaleNorm
from regard.nn.reversible import ReversibleBlock, ReversibleSequence
from regard.nn.scores import SCORES

__all__ = [
    "FEED_FORWARDS",
    "NORMS",
    "SCORES",
    "Chunked",
    "CoordConv2d",
    "FeedForward",
    "Heads",
    "LayerNorm",
    "LengthProjection",
    "MultiheadAttention",
    "RMSNorm",
    "ReversibleBlock",
    "ReversibleSequence",
    "ScaleNorm",
    "after_step",
    "call_after_step",
    "disagreement",
]

check_calls(globals(), __all__, counts=True)
