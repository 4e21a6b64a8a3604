"""Longformer: sliding windows, and global tokens with projections of their own (Beltagy et al. 2020, arXiv 2004.05150).

base, large: encoders of RoBERTa's sizes for 4,096 tokens; w = 256 on each side (512 in all); the first token is global.
character_small, character_large: the paper's causal language models for text8 and enwik8, read at 32,256 tokens. The
window grows from 512 at the bottom to 8,192 at the top, and upper layers step over tokens in two of the eight heads.
small: for small machines.

Unlike the paper: attention has no biases, gelu is exact; which token is global is not chosen by task (`global_tokens`
says how many first ones are). The language models add sinusoids to the embeddings where the paper has relative
positions in every layer; the widths of the windows between bottom and top are ours, in geometric steps.
"""

from regard.models.config import Layer
from regard.models.published.stack import (
    BERT_BASE,
    BERT_LARGE,
    SMALL,
    Preset,
    Published,
    mixed,
    sizes,
)


def _encoder(window_size: int) -> Preset:
    return mixed("longformer", window_size=window_size, max_global=1) | {"global_tokens": 1}


def _character(num_layers: int, dense: int, each: int) -> Preset:
    """The first `dense` layers step over nothing; then the step grows by one every `each` layers."""
    layers = []
    for n in range(num_layers):
        step = 1 if n < dense else 2 + (n - dense) // each
        options = {
            "window_size": 512 * 2 ** (4 * n // (num_layers - 1)),
            "dilation": (1,) * 6 + (step,) * 2,
            "max_global": 0,
        }
        layers.append(Layer("longformer", options))
    own = {"max_len": 32256, "mixer": tuple(layers), "feed_forward_bias": True, "dropout": 0.2}
    return sizes(512, 8, num_layers, hidden_dim=2048, **own)


longformer = Published(
    "longformer",
    __doc__,
    heads=("masked_language_model", "classifier", "language_model"),
    presets={
        "base": BERT_BASE | {"max_len": 4096} | _encoder(256),
        "large": BERT_LARGE | {"max_len": 4096} | _encoder(256),
        "character_small": _character(12, dense=6, each=2),
        "character_large": _character(30, dense=15, each=5),
        "small": SMALL | _encoder(16),
    },
)
