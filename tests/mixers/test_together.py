"""Laws of mixers whose options meet, or whose sizes matter, as in no variant of the catalogue."""

import pytest
import torch

from regard import MIXERS, build
from regard.functional.patterns import Block, PerHead, Span, Window
from regard.testing import check_mixer
from tests.laws.catalogue import FACTS


def squares(x):
    return torch.cat([x**2, torch.ones_like(x[..., :1])], dim=-1)


BASE = {"base": 50.0, "pairing": "adjacent"}
BUCKETS = {"num_buckets": 6, "max_distance": 5, "bidirectional": False}
HEADS = {"num_heads": 4, "num_kv_heads": 2, "head_dim": 8, "bias": "qkv", "sinks": True}
ALL = {**HEADS, "qk_norm": True, "gate": True, "soft_cap": 1.5}
EACH = PerHead((Window(1, 1), Block(2), Span(2, 4)))
OWN = "reference causality padding streaming map"
OBSERVED = "map observed empty isolation"
MANY_BLOCKS = "causality padding packed poison empty sensitivity map lengths"
CASES = [
    *(
        ("softmax", {"position": position, **options}, "reference streaming")
        for position in ("rotary", "alibi", "t5")
        for options in ({"num_kv_heads": 1, "scale": 1.0}, {"shared_qk": True})
    ),
    ("softmax", {"position": "rotary", "position_options": BASE}, "reference"),
    ("local", {"position": "rotary", "position_options": BASE}, "reference"),
    ("softmax", {"position": "t5", "position_options": BUCKETS}, "reference"),
    ("softmax", ALL, OBSERVED),
    ("softmax", {**HEADS, "position": "t5"}, OBSERVED),
    ("local", ALL, OBSERVED),
    ("softmax", {"scale": 0.0}, "fast"),
    ("softmax", {"scale": 0.0, "sinks": True}, "reference fast map"),
    ("softmax", {"scale": -1.0}, "fast"),
    ("linformer", {"num_slots": 4, "projection": "mean", "max_len": 5}, "map"),
    ("softmax", {"position": "alibi"}, "training_memory"),
    ("softmax", {"position": "t5"}, "training_memory transforms"),
    *((name, {"score": "additive"}, "transforms") for name in ("scored", "luong_local")),
    ("gau", {"scale": "paper", "relative_bias": "toeplitz"}, "transforms"),
    ("mixture", {"members": ("cosine", "additive")}, "transforms"),
    ("linear", {"feature_map": "relu"}, "reference"),
    ("linear", {"feature_map": squares}, "reference streaming"),
    ("longformer", {"window_size": 2, "max_global": 4}, "reference"),
    ("moba", {"block_size": 3, "top_k": 2}, MANY_BLOCKS),
    ("indexed", {"top_k": 3}, MANY_BLOCKS),
    ("indexed", {"top_k": 2, "block_size": 3}, MANY_BLOCKS),
    ("native_sparse", {"block_size": 2, "top_k": 4, "window_size": 3}, MANY_BLOCKS),
    ("head_mix", {"patterns": Window(2, 2)}, "reference map"),
    ("head_mix", {"patterns": EACH}, "reference map"),
    ("performer", {"features": torch.sigmoid, "num_features": 16}, OWN),
    ("performer", {"features": torch.square, "num_features": 16}, OWN),
    *(
        ("mixture", {"dim": 8, "num_heads": 1, **options}, "reference streaming map")
        for options in ({}, *MIXERS["mixture"].variants.values())
    ),
]


@pytest.mark.parametrize(("name", "options", "laws"), CASES)
def test_laws_hold(name, options, laws):
    checked = check_mixer(lambda: build(name, **FACTS | options), laws.split())
    assert [*checked.of("passed")] == checked
