"""FNet: an encoder whose tokens are mixed by a Fourier transform (Lee-Thorp et al. 2021, arXiv 2105.03824).

    h = LN(x + Re F_seq F_hid x),   out = LN(h + FFN(h))

base, large: BERT's sizes for 512 tokens. hybrid_base, hybrid_large: the last two layers attend. small: for small machines.

Unlike the paper: no projection D -> D and no segments after the embeddings, gelu is exact where the code has its tanh
form, the norms' eps is 1e-5, attention of the hybrids has no biases; and padding is as if absent, where the paper's
changes every output.
"""

from regard.models.config import Layer
from regard.models.published.stack import BERT_BASE, BERT_LARGE, SMALL, Preset, Published


def _hybrid(num_layers: int) -> Preset:
    return {"mixer": (Layer("fnet"),) * (num_layers - 2) + (Layer("softmax"),) * 2}


fnet = Published(
    "fnet",
    __doc__,
    heads=("masked_language_model", "classifier"),
    presets={
        "base": BERT_BASE | {"max_len": 512, "mixer": "fnet"},
        "large": BERT_LARGE | {"max_len": 512, "mixer": "fnet"},
        "hybrid_base": BERT_BASE | {"max_len": 512} | _hybrid(12),
        "hybrid_large": BERT_LARGE | {"max_len": 512} | _hybrid(24),
        "small": SMALL | {"mixer": "fnet", "norm_first": False, "embedding_norm": True},
    },
)
