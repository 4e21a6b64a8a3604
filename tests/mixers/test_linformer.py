"""Linformer beyond the laws: its limit, its symmetry, and one matrix for all layers."""

import pytest
import torch

import regard
from regard import Mask, OptionError
from regard.models import Classifier, ClassifierConfig
from regard.nn import LengthProjection
from regard.testing import LAWS, check_mixer

FACTS = {"dim": 24, "num_heads": 3, "max_len": 13}


def tokens(length=13):
    return torch.randn(2, length, 24, generator=torch.Generator().manual_seed(0)).double()


def test_with_the_identity_as_projection_it_is_softmax_attention():
    mixer = regard.build("linformer", num_slots=13, **FACTS).double()
    for matrix in mixer.project.parameters():
        matrix.data = torch.eye(13).double().repeat(3, 1, 1)
    full = regard.build("softmax", dim=24, num_heads=3).double()
    full.heads.load_state_dict(mixer.heads.state_dict())
    torch.testing.assert_close(mixer(tokens()), full(tokens()), rtol=0, atol=1e-12)
    torch.testing.assert_close(
        mixer.attention_map(tokens()), full.attention_map(tokens()), rtol=0, atol=1e-12
    )


def test_positions_and_columns_permuted_together_change_nothing():
    mixer = regard.build("linformer", num_slots=5, **FACTS).double()
    x, context = tokens(), tokens().flip(0)
    before = mixer(x, context=context)
    order = torch.randperm(13, generator=torch.Generator().manual_seed(1))
    for matrix in mixer.project.parameters():
        matrix.data = matrix.data[:, :, order]
    torch.testing.assert_close(mixer(x, context=context[:, order]), before, rtol=0, atol=1e-12)


def test_means_of_segments_have_no_longest_length_and_an_honest_map():
    mixer = regard.build("linformer", num_slots=4, projection="mean", **FACTS).double()
    weights = mixer.attention_map(tokens(31))
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
    check_mixer(
        layerwise,
        set(LAWS) - {"complexity", "long", "second_derivative", "training_memory", "transfer"},
    )  # which compare or remake options


def test_no_valid_key_gives_zero():
    mixer = regard.build("linformer", **FACTS)
    y = mixer(tokens().float(), context=tokens(9).float(), mask=Mask(valid=torch.zeros(2, 9) > 0))
    assert torch.equal(y, torch.zeros(2, 13, 24))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sharing": "all"}, r"sharing .* must be one of"),
        ({"sharing": "layerwise"}, "go together"),
        ({"projection": LengthProjection(13, 5)}, "go together"),
        ({"projection": "max"}, "a LengthProjection, 'mean' or None"),
        ({"projection": "mean", "sharing": "key_value"}, "nothing to share"),
        (
            {"sharing": "layerwise", "projection": LengthProjection(12, 5)},
            r"max_len \(13\) exceeds",
        ),
        (
            {"sharing": "layerwise", "projection": LengthProjection(13, 5), "num_slots": 4},
            r"num_slots \(4\)",
        ),
    ],
)
def test_options_that_contradict_each_other_are_named(options, words):
    with pytest.raises(OptionError, match=words):
        regard.build("linformer", **FACTS, **options)
