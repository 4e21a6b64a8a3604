"""Positions inside attention: what no law covers. Memory, models."""

import pytest

import regard
from tests.models.small import classifier, language_model


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
