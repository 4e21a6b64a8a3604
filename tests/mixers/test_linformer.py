"""Linformer beyond the laws: means of segments, and one matrix for all layers."""

import torch

import regard
from regard.nn import LengthProjection
from regard.testing import LAWS, check_mixer
from regard.testing.subject import normal
from tests.models.small import classifier, prompts

FACTS = {"dim": 24, "num_heads": 3, "max_len": 64}


def test_means_of_segments_have_no_longest_length_and_an_honest_map():
    options = FACTS | {"num_slots": 4, "projection": "mean", "max_len": 13}
    mixer = regard.build("linformer", **options).double()
    weights = mixer.attention_map(normal(2, 31, 24))
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 31).double())


def test_one_matrix_serves_all_layers():
    shared = LengthProjection(16, 5)
    options = {"sharing": "layerwise", "projection": shared}
    model = classifier(num_layers=3, max_len=16, mixer="linformer", mixer_options=options)
    assert [p.shape for p in model.parameters()].count((1, 5, 16)) == 1
    model(prompts()).sum().backward()
    assert shared.key.grad.abs().sum() > 0


def layerwise():
    options = {"sharing": "layerwise", "projection": LengthProjection(1200, 5)}
    return regard.build("linformer", **FACTS, **options)


def test_layerwise_keeps_the_laws():
    remade = {"complexity", "long", "second_derivative", "training_memory", "transfer"}
    check_mixer(layerwise, set(LAWS) - remade)  # the others compare or remake options
