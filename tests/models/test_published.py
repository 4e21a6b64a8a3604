"""The published stacks: composed as they say, of the published size, invariant, saved, compiled, trained."""

from dataclasses import replace

import pytest
import torch

import regard.models as m
from regard import MODELS
from regard.cli.describe import overview
from tests.models.small import assert_same, prompts, ragged, shaken
from tests.models.stacks import stack_oracle

IMAGES = [m.mlp_mixer, m.gmlp_image]
DECODERS = [m.llama3, m.qwen3, m.gemma3, m.retnet, m.mamba2, m.qwen3_next, m.kimi_linear]
"""Compared with Transformers in test_modern, RetNet by its count."""
PUBLISHED = [e for e in MODELS.values() if isinstance(e, m.Published) and e not in IMAGES]
STACKS = [e for e in PUBLISHED if e not in DECODERS]
T = 11
TOKENS = prompts(T)


def small(entry: m.Published, head: str, **changes) -> m.ModelConfig:
    classes = {"num_classes": 5} if head == "classifier" else {}
    made = entry("small", head=head, vocab_size=31, **classes, max_len=24)
    return replace(made, dim=16, num_heads=1 if made.num_heads == 1 else 2, **changes)


STACKED = [small(entry, head) for entry in STACKS for head in entry.heads if head != "transformer"]
STACKED.append(small(m.reformer, "language_model", residual="reversible_mean"))


@pytest.mark.parametrize("config", STACKED, ids=lambda config: f"{config.name}-{config.mixer_name}")
def test_each_row_is_what_the_parts_say_and_padding_changes_nothing(config):
    model = shaken(config)
    found = model(TOKENS.masked_fill(~ragged(T), -1), valid=ragged(T))
    for row in range(3):
        valid = ragged(T)[row]
        expected = stack_oracle(model, TOKENS[row, valid])
        got = found[row] if config.name == "classifier" else found[row, valid]
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)
    assert_same(model(TOKENS[2:, valid])[0], expected, model)
    with torch.no_grad():  # without a backward to prepare, reversible blocks take another way
        kept = model(TOKENS.masked_fill(~ragged(T), -1), valid=ragged(T))
    torch.testing.assert_close(kept, found, rtol=0, atol=1e-12)


def test_reversible_training_compiles_around_its_own_backward():
    options = {"num_layers": 1, "mixer": "softmax", "mixer_options": {}}
    model = shaken(small(m.reformer, "language_model", **options))
    parameters = list(model.parameters())
    gradients = (
        torch.autograd.grad(run(TOKENS).square().mean(), parameters)
        for run in (model, torch.compile(model, backend="eager"))
    )
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-12)


@pytest.mark.parametrize("entry", [*PUBLISHED, *IMAGES], ids=lambda entry: entry.name)
def test_every_size_builds(entry):
    sizes = {"vocab_size": 97, "head": entry.heads[0]}
    if entry in IMAGES:
        sizes = {"image_size": (224, 224), "channels": 3, "num_classes": 7}
    for preset in entry.presets:
        made = entry(preset, **sizes)
        assert m.count_parameters(made) > 0
        assert entry in IMAGES or made.max_len >= 256


@pytest.mark.parametrize("preset", [m.transformer_small, m.transformer_xl_small, m.xlnet_small])
def test_small_presets_build(preset):
    assert m.count_parameters(preset(50)) > 50 * 128


@pytest.mark.parametrize("stem", [(), ((5, 1), (6, 2))])
@pytest.mark.parametrize("entry", IMAGES, ids=lambda entry: entry.name)
def test_image_models_are_what_the_parts_say_and_read_numbers(entry, stem):
    sizes = {"image_size": (4, 6), "patch_size": 2, "channels": 3}
    made = entry("small", **sizes, num_classes=5, vocab_size=9, stem=stem)
    model = shaken(replace(made, dim=16))
    pixels = torch.randint(0, 9, (3, 72), generator=torch.Generator().manual_seed(1))
    model.train()(pixels)  # which moves the averages of the stem
    model.eval()
    expected = torch.stack([stack_oracle(model, picture) for picture in pixels])
    torch.testing.assert_close(model(pixels), expected, rtol=0, atol=1e-10)
    numbers = pixels.view(3, 3, 4, 6).double() / 4 - 1
    torch.testing.assert_close(model.read(numbers), model(pixels))


def test_a_swapped_mixer_is_one_argument():
    for entry in STACKS:
        for mixer in ("softmax", "linear"):
            made = entry("small", head="classifier", vocab_size=31, num_classes=2, mixer=mixer)
            assert made.mixer_name == mixer and made.build()(TOKENS).shape == (3, 2)
    few = m.linformer("small", vocab_size=9, mixer_options={"num_slots": 2})
    assert few.mixer_name == "linformer" and few.mixer_options == {"num_slots": 2}
    wide = m.fnet("hybrid_base", vocab_size=9, mixer="local", mixer_options={"window_size": 3})
    assert wide.layers == (m.Layer("local", {"window_size": 3}),) * 12


def test_models_are_listed_with_their_sizes_and_tasks():
    rows = {row["name"]: row for row in overview("models")}
    for entry in (*STACKS, *IMAGES):
        assert rows[entry.name]["presets"] == list(entry.presets)
        assert rows[entry.name]["tasks"] == entry.kinds
        assert entry.name.split("_")[0] in rows[entry.name]["what"].lower().replace("-", "_")
    assert "transformer_base" in rows["transformer"]["presets"]
