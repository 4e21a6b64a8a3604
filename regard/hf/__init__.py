"""Adapters to Hugging Face Transformers: mechanisms in its models, its checkpoints in ours."""

from regard.hf.attention import AttentionConfig, register
from regard.hf.load import load

__all__ = ["AttentionConfig", "load", "register"]
