"""Scores taken some queries at a time: memory never holds all pairs."""

import torch

import regard
from regard import Mask
from regard.testing.counting import count


def test_training_with_additive_scores_holds_no_hidden_layer_of_all_pairs():
    T = 2048
    with torch.device("meta"):
        options = {"score": "additive", "score_options": {"hidden_dim": 32}}
        mixer = regard.build("scored", dim=24, num_heads=3, **options)
        x = torch.empty(1, T, 24, requires_grad=True)
    used = count(lambda: mixer(x, mask=Mask(causal=True)).sum().backward()).peak_bytes
    assert used < 3 * T * T * 4  # one float for every pair and head; the hidden layer has 32
