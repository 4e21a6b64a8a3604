"""Linformer: keys and values projected along the length to k slots (Wang et al. 2020, arXiv 2006.04768).

base, base_128: encoders of RoBERTa-base's size for 512 tokens with k = 256 or 128; one matrix serves keys, values and
heads ("key_value"). small: for small machines, k = 32.

Unlike the paper: attention has no biases, gelu is exact; the form that shares one matrix among all layers too is not
among the sizes, since a configuration holds no module (the mixer `linformer` has it: sharing="layerwise").
"""

from regard.models.published.stack import BERT_BASE, SMALL, Preset, Published, mixed


def _slots(num_slots: int) -> Preset:
    return mixed("linformer", num_slots=num_slots, sharing="key_value")


linformer = Published(
    "linformer",
    __doc__,
    heads=("masked_language_model", "classifier"),
    presets={
        "base": BERT_BASE | {"max_len": 512} | _slots(256),
        "base_128": BERT_BASE | {"max_len": 512} | _slots(128),
        "small": SMALL | _slots(32),
    },
)
