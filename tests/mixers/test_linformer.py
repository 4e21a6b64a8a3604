"""Linformer beyond the laws: means of segments, and one matrix for all layers."""

import torch

import regard
from regard.models import Classifier, ClassifierConfig
from regard.nn import LengthProjection
from regard.testing import LAWS, check_mixer
from regard.testing.subject import normal

FACTS = {"dim": 24, "num_heads": 3, "max_len": 13}


def test_means_of_segments_have_no_longest_length_and_an_honest_map():
    mixer = regard.build("linformer", num_slots=4, projection="mean", **FACTS).double()
    weights = mixer.attention_map(normal(2, 31, 24))
    assert (weights >= 0).all()
    torch.testing.assert_close(weights.sum(-1), torch.ones(2, 3, 31).double())


def test_one_matrix_serves_all_layers():
    shared = LengthProjection(16, 5)
    config = ClassifierConfig(
        vocab_size=11,
        num_classes=2,
        dim=24,
        num_heads=3,
        num_layers=3,
        max_len=16,
        mixer="linformer",
        mixer_options={"sharing": "layerwise", "projection": shared},
    )
    model = Classifier(config)
    matrices = [p for p in model.parameters() if p.shape == (1, 5, 16)]
    assert len(matrices) == 1
    model(torch.ones(2, 7, dtype=torch.long)).sum().backward()
    assert shared.key.grad.abs().sum() > 0


def layerwise():
    shared = LengthProjection(1200, 5)
    return regard.build(
        "linformer", dim=24, num_heads=3, max_len=64, sharing="layerwise", projection=shared
    )


def test_layerwise_keeps_the_laws():
    # These compare or remake options.
    check_mixer(
        layerwise,
        set(LAWS) - {"complexity", "long", "second_derivative", "training_memory", "transfer"},
    )
