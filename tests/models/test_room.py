"""Requests that no memory holds are refused before it is taken, and the error says what would fit."""

import pytest
import torch

from regard import OptionError
from regard.models import TransformerXLConfig
from tests.models.small import language_model

TOKENS = torch.tensor([[1, 2, 3]])


def models():
    xl = TransformerXLConfig(vocab_size=9, dim=8, num_heads=2, num_layers=1, mem_len=4).build()
    return [language_model(), language_model(mixer="linear"), xl]


@pytest.mark.parametrize("model", models(), ids=["softmax", "linear", "transformer_xl"])
def test_a_billion_tokens_and_a_million_beams_are_refused(model, monkeypatch):
    for module in ("regard.core.memory", "regard.models.generation"):
        monkeypatch.setattr(f"{module}.free_bytes", lambda device: 10 << 30)
    said = r"max_new_tokens \(1000000000\) needs .*iB, and 10.0 GiB are free on cpu. At most \d+ would fit"
    with pytest.raises(OptionError, match=said):
        model.generate(TOKENS, max_new_tokens=10**9)
    said = r"100000000 beams needs .*iB, and 10.0 GiB are free on cpu. At most \d+ would fit"
    with pytest.raises(OptionError, match=said):
        model.beam_search(TOKENS, max_new_tokens=4, beams=10**8)
    monkeypatch.setattr("regard.models.generation.free_bytes", lambda device: 1 << 26)
    monkeypatch.setattr("regard.core.memory.free_bytes", lambda device: 1 << 26)
    with pytest.raises(OptionError, match="1000000 beams needs"):
        model.beam_search(TOKENS, max_new_tokens=4, beams=10**6)
    assert model.generate(TOKENS, max_new_tokens=3).shape == (1, 3)
