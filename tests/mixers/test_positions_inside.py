"""Positions inside attention: what no law covers. Options together, memory, models."""

import pytest
import torch

import regard
from regard import Form, Mask
from regard.testing import check_mixer
from tests.kept import kept_storages
from tests.models.small import classifier, language_model

KINDS = ["rotary", "alibi", "t5"]


@pytest.mark.parametrize("position", KINDS)
@pytest.mark.parametrize(
    "options", [{"num_kv_heads": 1, "scale": 1.0}, {"shared_qk": True}], ids=str
)
@pytest.mark.parametrize("law", ["reference", "streaming"])
def test_positions_hold_with_other_options(position, options, law):
    options = {"position": position} | options
    check_mixer(lambda: regard.build("softmax", dim=24, num_heads=3, **options), law)


@pytest.mark.parametrize(
    ("mixer", "position", "position_options"),
    [
        ("softmax", "rotary", {"base": 50.0, "pairing": "adjacent"}),
        ("local", "rotary", {"base": 50.0, "pairing": "adjacent"}),
        ("softmax", "t5", {"num_buckets": 6, "max_distance": 5, "bidirectional": False}),
    ],
)
def test_position_options_are_the_oracles_too(mixer, position, position_options):
    options = {"position": position, "position_options": position_options}
    check_mixer(lambda: regard.build(mixer, dim=24, num_heads=3, **options), "reference")


@pytest.mark.parametrize("position", ["alibi", "t5"])
def test_training_holds_no_bias_of_all_pairs(position):
    options = {"position": position, "impl": Form(tile=4)}
    mixer = regard.build("softmax", dim=8, num_heads=2, **options)
    T = 64
    x, mask = torch.randn(1, T, 8), Mask(causal=True)
    held = kept_storages(lambda: mixer(x, mask=mask))
    assert max(storage.nbytes() for storage in held) <= T * 8 * 4


@pytest.mark.parametrize("mixer, position", [("softmax", p) for p in KINDS] + [("local", "rotary")])
def test_models_hand_them_to_the_mixer(mixer, position):
    for make in (language_model, classifier):
        mixers = make(mixer=mixer, position=position).encoder.mixers
        assert [made.position.name for made in mixers] == [position] * 2


def test_models_hand_their_options_on():
    model = language_model(position="rotary", position_options={"base": 100.0})
    assert all(mixer.position.base == 100.0 for mixer in model.encoder.mixers)
    twice = {"position_options": {"base": 100.0}, "mixer_options": {"position_options": {}}}
    with pytest.raises(regard.OptionError, match="must not hold position_options"):
        language_model(position="rotary", **twice)
