"""Models that read whole sequences: hidden tokens, pairs, pixels."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import regard
from regard.models import (
    Classifier,
    DualEncoder,
    DualEncoderConfig,
    MaskedLanguageModel,
    MaskedLanguageModelConfig,
    corrupt,
    pixel_classifier,
    pixel_tokens,
)
from tests.models.small import STACK, VOCAB, prompts, ragged


def masked(**options) -> MaskedLanguageModel:
    torch.manual_seed(0)
    return MaskedLanguageModelConfig(**{**STACK, **options}).build().double().eval()


def dual(**options) -> DualEncoder:
    torch.manual_seed(0)
    return DualEncoderConfig(**{**STACK, **options}).build().double().eval()


def pairs(T: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    other = torch.randint(0, VOCAB, (3, 5), generator=torch.Generator().manual_seed(8))
    return prompts(T), other


def test_masked_logits_are_those_of_the_formula():
    model = masked()
    nn.init.normal_(model.bias)
    h = model.encoder(prompts())
    z = F.layer_norm(F.gelu(h @ model.transform.weight.T + model.transform.bias), (24,))
    wanted = z @ model.encoder.embedding.table.weight.T + model.bias
    torch.testing.assert_close(model(prompts()), wanted, rtol=0, atol=1e-10)


@pytest.mark.parametrize("mixer", ["softmax", "linear", "fnet", "gau"])
def test_hidden_tokens_are_told_from_both_sides_and_padding_changes_nothing(mixer):
    model, text, valid = masked(mixer=mixer), prompts(), ragged()
    for at in (0, 6):
        changed = text.clone()
        changed[:, at] = (changed[:, at] + 1) % VOCAB
        assert (model(changed) - model(text))[:, 3].abs().amax(-1).min() > 0
    if not model.encoder.mixers[0].capabilities.padding:
        with pytest.raises(regard.UnsupportedError, match="padding"):
            model(text, valid=valid)
        return
    padded = model(text.masked_fill(~valid, -1), valid=valid)
    for row in range(3):
        alone = model(text[row : row + 1, valid[row]])
        torch.testing.assert_close(padded[row, valid[row]], alone[0], rtol=0, atol=1e-9)


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


@pytest.mark.parametrize("position", ["axial", "coordinates", "learned"])
def test_pixels_are_read_row_by_row(position):
    config = pixel_classifier(3, 5, 4, levels=8, dim=24, num_heads=3, position=position)
    assert (config.max_len, config.vocab_size) == (15, 8)
    model = config.build().eval()
    assert isinstance(model, Classifier)
    images = torch.arange(15, dtype=torch.uint8).view(1, 3, 5) * 17
    tokens = pixel_tokens(images, levels=8)
    assert tokens[0].tolist() == [p * 17 // 32 for p in range(15)]
    assert torch.equal(pixel_tokens(images / 256, levels=8), tokens)
    assert pixel_tokens(torch.ones(1, 1, 1))[0, 0] == 255
    assert model(tokens).shape == (1, 4)
    moved = model(pixel_tokens(images.roll(1, dims=2), levels=8))
    assert not torch.allclose(moved, model(tokens))


def test_bad_requests_are_named():
    first, second = pairs()
    for error, asked, said in [
        (regard.ShapeError, lambda: dual()(first, second[:2]), "first has batch 3, second 2"),
        (regard.ShapeError, lambda: dual()(first, second + VOCAB), "outside the vocabulary"),
        (regard.OptionError, lambda: dual(mlp_dim=1), "mlp_dim"),
        (regard.OptionError, lambda: dual(num_classes=0), "num_classes"),
        (regard.OptionError, lambda: corrupt(first, mask_token=9, vocab_size=9), "mask_token"),
        (regard.OptionError, lambda: corrupt(first, mask_token=1, vocab_size=9, rate=2), "rate"),
        (regard.ShapeError, lambda: pixel_tokens(torch.ones(2, 3, 4, 4)), "Make colours grey"),
        (regard.OptionError, lambda: pixel_tokens(torch.ones(2, 3, 4).long()), "torch.int64"),
        (regard.OptionError, lambda: pixel_classifier(0, 4, 2), "height"),
    ]:
        with pytest.raises(error, match=said):
            asked()
