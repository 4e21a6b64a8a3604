"""Luong's local attention beyond the laws: what the Gaussian does."""

import regard
from regard.testing.subject import normal


def test_a_prediction_at_its_end_looks_at_the_last_key():
    options = {"window_size": 1, "alignment": "predictive"}
    mixer = regard.build("luong_local", dim=24, num_heads=3, **options).double()
    mixer.v_p.data.fill_(1e4)
    mixer.W_p.data.fill_(1e4)
    x = normal(2, 13, 24)
    assert mixer(x).isfinite().all() and (mixer.attention_map(x).sum(-1) > 0).all()
