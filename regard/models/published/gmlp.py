"""gMLP and aMLP: feed-forward layers gated across positions, and a tiny attention in the gate (Liu et al. 2021, arXiv 2105.08050).

base, large, xlarge: the paper's masked language models of 48, 96 and 144 layers for 512 tokens; amlp_base, amlp_large
have 36 and 72 with tiny attention of width 64 and 128. Position mixing is one number per distance, which gives
the published numbers of parameters (130, 365 and 941 million; 109 and 316). No positions are added. Two gated layers are one
ordinary block, so num_layers is half the paper's. small: for small machines.

`gmlp_image` has the paper's image models. Unlike the paper: the head of the masked language model is BERT's.
"""

from typing import Any

from regard.models.published.stack import SMALL, Preset, Published, mixed


def _text(dim: int, layers: int, hidden_dim: int, attention_dim: int | None = None) -> Preset:
    own = _gated(hidden_dim=hidden_dim, attention_dim=attention_dim, toeplitz=True)
    return {"dim": dim, "num_layers": layers // 2, "max_len": 512, **own}


def _image(dim: int, hidden_dim: int) -> Preset:
    return {"dim": dim, "num_layers": 15, "patch_size": 16, **_gated(hidden_dim=hidden_dim)}


def _gated(**options: Any) -> Preset:
    return mixed("gmlp", **options) | {"num_heads": 1, "position": "none"}


gmlp = Published(
    "gmlp",
    __doc__,
    heads=("masked_language_model", "classifier", "language_model"),
    presets={
        "base": _text(512, 48, 3072),
        "large": _text(768, 96, 3072),
        "xlarge": _text(1024, 144, 4096),
        "amlp_base": _text(512, 36, 3072, 64),
        "amlp_large": _text(768, 72, 3072, 128),
        "small": SMALL | _gated(hidden_dim=256),
    },
)

gmlp_image = Published(
    "gmlp_image",
    f"""gMLP for images (Liu et al. 2021, arXiv 2105.08050).

ti_16, s_16, b_16: 30 layers over patches of 16 pixels. No positions are added; two gated layers are one ordinary block.
small: for small machines. Unlike the paper: no stochastic depth.

{__doc__}""",
    heads=("patch_classifier",),
    presets={
        "ti_16": _image(128, 768),
        "s_16": _image(256, 1536),
        "b_16": _image(512, 3072),
        "small": {"dim": 64, "num_layers": 2, "patch_size": 2, **_gated(hidden_dim=256)},
    },
)
