"""Models that read whole sequences: hidden tokens, pairs."""

import pytest
import torch

import regard
from regard.models import (
    DualEncoder,
    DualEncoderConfig,
    corrupt,
)
from tests.models.small import STACK, VOCAB, prompts


def dual(**options) -> DualEncoder:
    torch.manual_seed(0)
    return DualEncoderConfig(**{**STACK, **options}).build().double().eval()


def pairs(T: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    other = torch.randint(0, VOCAB, (3, 5), generator=torch.Generator().manual_seed(8))
    return prompts(T), other


def test_corruption_is_eight_one_one_and_spares_what_it_must():
    text = torch.randint(2, 50, (200, 100), generator=torch.Generator().manual_seed(0))
    valid = torch.rand(200, 100, generator=torch.Generator().manual_seed(1)) < 0.9
    given = {"mask_token": 1, "vocab_size": 50, "valid": valid, "never": (2, 3)}
    made = corrupt(text, generator=torch.Generator().manual_seed(2), **given)
    again = corrupt(text, generator=torch.Generator().manual_seed(2), **given)
    assert torch.equal(made.tokens, again.tokens) and torch.equal(made.labels, again.labels)
    asked = made.labels != -100
    spared = ~valid | (text == 2) | (text == 3)
    assert not asked[spared].any() and torch.equal(made.labels[asked], text[asked])
    assert torch.equal(made.tokens[~asked], text[~asked])
    assert abs(float(asked[~spared].float().mean()) - 0.15) < 0.01
    hidden = float((made.tokens[asked] == 1).float().mean())
    kept = float((made.tokens[asked] == text[asked]).float().mean())
    assert abs(hidden - 0.8) < 0.025 and abs(kept - 0.1) < 0.02
    everything = corrupt(text, mask_token=1, vocab_size=50, rate=1.0)
    assert torch.equal(everything.labels, text)
    assert corrupt(text.int(), mask_token=1, vocab_size=50).tokens.dtype == torch.int32


def test_pairs_are_compared_by_the_four_features():
    model, (first, second) = dual(num_classes=3, mlp_dim=10), pairs()
    e1, e2 = model.encoder(first).mean(1), model.encoder(second).mean(1)
    one, _, two, _, out = model.head
    x = torch.cat([e1, e2, e1 * e2, e1 - e2], dim=1)
    x = (x @ one.weight.T + one.bias).relu()
    x = (x @ two.weight.T + two.bias).relu()
    wanted = x @ out.weight.T + out.bias
    torch.testing.assert_close(model(first, second), wanted, rtol=0, atol=1e-11)
    assert two.weight.shape == (5, 10) and wanted.shape == (3, 3)
    assert not torch.allclose(model(second, first), wanted)


def test_bad_requests_are_named():
    first, second = pairs()
    for error, asked, said in [
        (regard.ShapeError, lambda: dual()(first, second[:2]), "first has batch 3, second 2"),
        (regard.ShapeError, lambda: dual()(first, second + VOCAB), "outside the vocabulary"),
        (regard.OptionError, lambda: dual(mlp_dim=1), "mlp_dim"),
        (regard.OptionError, lambda: dual(num_classes=0), "num_classes"),
        (regard.OptionError, lambda: corrupt(first, mask_token=9, vocab_size=9), "mask_token"),
        (regard.OptionError, lambda: corrupt(first, mask_token=1, vocab_size=9, rate=2), "rate"),
    ]:
        with pytest.raises(error, match=said):
            asked()
