"""Reformer: hashed attention in a reversible stack with chunked feed-forward layers (Kitaev et al. 2020, arXiv 2001.04451).

    y_1 = x_1 + Attention(LN x_2),   y_2 = x_2 + FFN(LN y_1)          both streams start as the embedding and end side by side

Keys are queries of length one, so that attention has three matrices; a token looks at the tokens of its buckets
(`reformer`), or, in the layers between, at its neighbours (`local`). Training stores the activations of the last block
alone and computes the others back; the feed-forward layer takes a part of the tokens at a time; a position is a row
and a column of two small tables.

enwik8: 12 layers, local, local, hashed, local and so on, for 65,536 bytes (about 149 million parameters).
imagenet64: three hashed layers for the 12,288 values of a 64x64 image with three colours, the sizes of the paper's comparisons.
small: for small machines.

Unlike the paper: causal buckets are the strict ones of the mixer `reformer` (`published_causal` is the code's), heads
share the width (128 channels of 1,024 where the code's enwik8 has 64), local layers are a sliding window where the
code's are blocks and the block before, no dropout on weights.
"""

from regard.models.config import Layer
from regard.models.published.stack import SMALL, Published, mixed, sizes

_LARGE = {
    "feed_forward": "relu",
    "feed_forward_bias": True,
    "residual": "reversible",
    "position": "axial",
    "dropout": 0.1,
}


_HASHED = Layer("reformer", {"chunk_size": 256, "num_buckets": 512, "num_hashes": 2})
_LOCAL = Layer("local", {"window_size": 256})

reformer = Published(
    "reformer",
    __doc__,
    heads=("language_model", "masked_language_model", "classifier"),
    presets={
        "enwik8": {
            **sizes(1024, 8, 12, hidden_dim=4096, max_len=65536, **_LARGE),
            "mixer": (_LOCAL, _LOCAL, _HASHED, _LOCAL),
            "position_options": {"shape": (128, 512), "dims": (256, 768)},
            "feed_forward_chunk": 4096,
        },
        "imagenet64": {
            **sizes(1024, 8, 3, hidden_dim=4096, max_len=12288, **_LARGE),
            **mixed("reformer", chunk_size=128, num_buckets=192, num_hashes=2),
            "position_options": {"shape": (64, 64, 3)},
            "feed_forward_chunk": 2048,
        },
        "small": {
            **SMALL,
            **mixed("reformer", chunk_size=32, num_hashes=4),
            "residual": "reversible",
            "position": "axial",
            "feed_forward_chunk": 64,
        },
    },
)
