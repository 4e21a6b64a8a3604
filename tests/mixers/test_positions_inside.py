"""Positions inside attention: what no law covers. Memory, models."""

import pytest
import torch

import regard
from regard import Form, Mask
from tests.kept import kept_storages
from tests.models.small import classifier, language_model


@pytest.mark.parametrize("position", ["alibi", "t5"])
def test_training_holds_no_bias_of_all_pairs(position):
    options = {"position": position, "impl": Form(tile=4)}
    mixer = regard.build("softmax", dim=8, num_heads=2, **options)
    T = 64
    x, mask = torch.randn(1, T, 8), Mask(causal=True)
    held = kept_storages(lambda: mixer(x, mask=mask))
    assert max(storage.nbytes() for storage in held) <= T * 8 * 4


@pytest.mark.parametrize("mixer", ["softmax", "local"])
@pytest.mark.parametrize("model", [language_model, classifier])
def test_models_hand_them_to_the_mixer(mixer, model):
    mixers = model(mixer=mixer, position="rotary").encoder.mixers
    assert [made.position.name for made in mixers] == ["rotary"] * 2


def test_models_hand_their_options_on():
    model = language_model(position="rotary", position_options={"base": 100.0})
    assert all(mixer.position.base == 100.0 for mixer in model.encoder.mixers)
    twice = {"position_options": {"base": 100.0}, "mixer_options": {"position_options": {}}}
    with pytest.raises(regard.OptionError, match="must not hold position_options"):
        language_model(position="rotary", **twice)
