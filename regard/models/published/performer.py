"""Performer: linear attention by positive orthogonal random features (Choromanski et al. 2020, arXiv 2009.14794).

proteins: the 36-layer model for protein sequences, in both directions (TrEMBL, 8,192 tokens).
imagenet64: the 6-layer causal model for pixels of 64x64 images, 12,288 tokens of 256 levels.
small: for small machines. All with 256 features (64 in small), drawn anew every 1,000 steps.

Unlike the paper: sinusoids are added to the embeddings, the norms come before the layers, and causal stabilising is
strict, as the mixer `performer` says.
"""

from regard.models.published.stack import SMALL, Published, mixed, sizes

_SHARED = mixed("performer", num_features=256) | {"feed_forward_bias": True, "dropout": 0.1}

performer = Published(
    "performer",
    __doc__,
    heads=("language_model", "masked_language_model", "classifier"),
    presets={
        "proteins": sizes(512, 8, 36, hidden_dim=1024, max_len=8192, **_SHARED),
        "imagenet64": sizes(512, 8, 6, hidden_dim=2048, max_len=12288, **_SHARED),
        "small": SMALL | mixed("performer", num_features=64),
    },
)
