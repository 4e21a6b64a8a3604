"""Adapters to Hugging Face Transformers: mechanisms in its models, its checkpoints in ours, and ours in its format."""

from regard.hf.attention import AttentionConfig, register
from regard.hf.convert import convert, teach
from regard.hf.load import load
from regard.hf.models import AfterStep, register_models, wrap

__all__ = [
    "AfterStep",
    "AttentionConfig",
    "convert",
    "load",
    "register",
    "register_models",
    "teach",
    "wrap",
]
