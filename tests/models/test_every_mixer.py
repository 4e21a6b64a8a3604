"""Every mixer of the catalogue in both models, or refused with its reason."""

import pytest
import torch

from regard import MIXERS, UnsupportedError, build
from regard.models import count_parameters, match_parameters
from tests.models.small import classifier, language_model, prompts, ragged


@pytest.mark.parametrize("mixer", MIXERS.names())
def test_generates_what_forward_says_and_padding_changes_nothing(mixer):
    can = build(mixer, dim=24, num_heads=3, max_len=40).capabilities
    if not can.causal or can.streaming != "exact":
        with pytest.raises(UnsupportedError, match=f"^{mixer} does not support"):
            language_model(mixer=mixer).generate(prompts(), max_new_tokens=2)
        return
    model = language_model(mixer=mixer)
    text = prompts()
    for _ in range(6):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(model.generate(prompts(), max_new_tokens=6), text[:, 7:])
    if can.padding:
        together = model.generate(prompts(), valid=ragged(), max_new_tokens=6)
        alone = [prompts()[row : row + 1, ragged()[row]] for row in range(3)]
        assert torch.equal(
            together, torch.cat([model.generate(p, max_new_tokens=6) for p in alone])
        )


@pytest.mark.parametrize("mixer", MIXERS.names())
def test_classifies_with_parameters_matched_and_padding_ignored(mixer):
    can = MIXERS[mixer].capabilities
    if not can.bidirectional:
        with pytest.raises(UnsupportedError, match=f"^{mixer} does not support bidirectional"):
            classifier(mixer=mixer)
        return
    model = classifier(mixer=mixer)
    assert abs(count_parameters(match_parameters(model.config, 30_000)) - 30_000) <= 3_000
    if can.padding:
        padded = model(prompts(), valid=ragged())
        alone = [model(prompts()[row : row + 1, ragged()[row]]) for row in range(3)]
        torch.testing.assert_close(padded, torch.cat(alone), rtol=0, atol=1e-9)
