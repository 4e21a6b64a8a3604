"""Synthesizer: attention whose logits no pair of tokens makes (Tay et al. 2020, arXiv 2005.00743).

The base Transformer (6 + 6 layers, width 512) for up to 256 tokens, as in the paper's translation table, whose encoder
and decoder synthesize their own logits; attention across from decoder to encoder stays the dot product. By the source
of the logits: random (a learned table), fixed (a table that is not trained), factorized_random (of rank 8), dense (made
by each token alone), factorized_dense, and blends of two: random_dense, dense_vanilla, random_vanilla, vanilla being the
dot product. small: random_vanilla for small machines.

As a language model or a classifier it is one such stack of 6 layers. Unlike the paper: attention has no biases.
"""

from regard.models.published.stack import SMALL, Preset, Published, mixed, sizes

_BASE = {
    **sizes(512, 8, 6, hidden_dim=2048, max_len=256),
    "feed_forward": "relu",
    "feed_forward_bias": True,
    "norm_first": False,
    "dropout": 0.1,
}


def _blend(*members: str) -> Preset:
    return mixed("mixture", members=members)


synthesizer = Published(
    "synthesizer",
    __doc__,
    heads=("transformer", "language_model", "classifier", "masked_language_model"),
    presets={
        "random": _BASE | {"mixer": "synthesizer_random"},
        "fixed": _BASE | mixed("synthesizer_random", trainable=False),
        "factorized_random": _BASE | mixed("synthesizer_factorized_random", rank=8),
        "dense": _BASE | {"mixer": "synthesizer_dense"},
        "factorized_dense": _BASE | {"mixer": "synthesizer_factorized_dense"},
        "random_dense": _BASE | _blend("synthesizer_random", "synthesizer_dense"),
        "dense_vanilla": _BASE | _blend("synthesizer_dense", "softmax"),
        "random_vanilla": _BASE | _blend("synthesizer_random", "softmax"),
        "small": SMALL | _blend("synthesizer_random", "softmax"),
    },
)
