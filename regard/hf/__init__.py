"""Adapters to Hugging Face Transformers: mechanisms in its models."""

from regard.hf.attention import AttentionConfig, register

__all__ = ["AttentionConfig", "register"]
