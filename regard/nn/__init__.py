"""Shared parts with parameters."""

from regard.nn.feed_forward import FEED_FORWARDS, FeedForward
from regard.nn.heads import Heads
from regard.nn.norm import NORMS, LayerNorm, ScaleNorm

__all__ = ["FEED_FORWARDS", "NORMS", "FeedForward", "Heads", "LayerNorm", "ScaleNorm"]
