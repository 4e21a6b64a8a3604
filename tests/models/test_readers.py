"""Models that read whole sequences: hidden tokens, pairs, pixels."""

import pytest
import torch
import torch.nn.functional as F
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint

import regard
from regard.models import (
    MODELS,
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


def asked(model: nn.Module) -> tuple[torch.Tensor, ...]:
    return pairs() if isinstance(model, DualEncoder) else (prompts(),)


def test_are_in_the_catalogue():
    assert MODELS["masked_language_model"] is MaskedLanguageModel
    assert MODELS["dual_encoder"] is DualEncoder


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


def test_learns_to_fill_in_a_period():
    """Rows repeat two tokens: a hidden one stands two places away."""
    torch.manual_seed(0)
    model = MaskedLanguageModelConfig(
        vocab_size=12, dim=32, num_heads=2, num_layers=1, max_len=8, position="learned"
    ).build()
    optimizer = torch.optim.Adam(model.parameters(), lr=5e-3)
    for _ in range(80):
        text = torch.randint(2, 12, (64, 2)).repeat(1, 4)
        inputs, labels = corrupt(text, mask_token=1, vocab_size=12, rate=0.3)
        loss = F.cross_entropy(model(inputs).flatten(0, 1), labels.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    text = torch.randint(2, 12, (64, 2)).repeat(1, 4)
    hidden = text.clone()
    hidden[:, 3] = 1
    assert (model(hidden)[:, 3].argmax(-1) == text[:, 3]).float().mean() > 0.95


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


@pytest.mark.parametrize("summary", ["mean", "max"])
def test_padding_of_either_side_changes_no_match(summary):
    model, (first, second) = dual(summary=summary), pairs()
    valid = torch.arange(5) >= torch.tensor([[0], [3], [1]])
    logits = model(
        first.masked_fill(~ragged(), -1), second, first_valid=ragged(), second_valid=valid
    )
    for row in range(3):
        alone = model(first[row : row + 1, ragged()[row]], second[row : row + 1, valid[row]])
        torch.testing.assert_close(logits[row], alone[0], rtol=0, atol=1e-10)


@pytest.mark.parametrize("make", [masked, dual])
def test_saved_and_loaded_is_the_same(make, tmp_path):
    model = make(position="learned", norm_first=False)
    save_file(model.state_dict(), tmp_path / "model.safetensors")
    other = model.config.build().double().eval()
    assert not torch.equal(other(*asked(other)), model(*asked(model)))
    other.load_state_dict(load_file(tmp_path / "model.safetensors"))
    assert torch.equal(other(*asked(other)), model(*asked(model)))


@pytest.mark.parametrize("make", [masked, dual])
def test_compiles_whole(make):
    model = make(num_layers=1)
    compiled = torch.compile(model, fullgraph=True, backend="eager")
    torch.testing.assert_close(compiled(*asked(model)), model(*asked(model)))


@pytest.mark.parametrize("make", [masked, dual])
def test_recomputed_gradients_are_the_same(make):
    grads = []
    for again in (False, True):
        model = make(dropout=0.3).train()
        torch.manual_seed(1)
        given = asked(model)
        out = checkpoint(model, *given, use_reentrant=False) if again else model(*given)
        out.square().mean().backward()
        grads.append([p.grad for p in model.parameters()])
    assert all(map(torch.equal, *grads))


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
