"""The published stacks: composed as they say, of the published size, invariant, saved, compiled, trained."""

from dataclasses import replace

import pytest
import torch

import regard.models as m
from regard import MODELS
from regard.cli.describe import overview
from regard.testing.subject import results
from tests.models.small import assert_same, prompts, ragged, shaken
from tests.models.stacks import stack_oracle
from tests.models.test_every_model import small

IMAGES = [m.mlp_mixer, m.gmlp_image]
DECODERS = [m.llama3, m.qwen3, m.gemma3, m.retnet, m.mamba2, m.qwen3_next, m.kimi_linear]
"""Compared with Transformers in test_modern, RetNet by its count."""
PUBLISHED = [e for e in MODELS.values() if isinstance(e, m.Published) and e not in IMAGES]
STACKS = [e for e in PUBLISHED if e not in DECODERS]
BASE = m.transformer_base(33708, max_len=256)
MILLIONS = m.count_parameters(BASE) / 1e6
T = 11
TOKENS = prompts(T)


def narrow(entry: m.Published, head: str, **changes) -> m.ModelConfig:
    made = small(entry, head)
    return replace(made, dim=16, num_heads=min(made.num_heads, 2), **changes)


STACKED = [narrow(entry, head) for entry in STACKS for head in entry.heads if head != "transformer"]
STACKED.append(narrow(m.reformer, "language_model", residual="reversible_mean"))


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
    model = shaken(narrow(m.reformer, "language_model", **options))
    runs = model, torch.compile(model, backend="eager")
    found = (results(model, run(TOKENS)) for run in runs)
    torch.testing.assert_close(*found, rtol=0, atol=1e-12)


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
def test_small_presets_build_and_counting_leaves_the_random_generator_alone(preset):
    before = torch.get_rng_state()
    assert m.count_parameters(preset(50)) > 50 * 128
    assert torch.equal(torch.get_rng_state(), before)


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


def test_a_swapped_mixer_is_one_argument_and_a_pattern_is_the_encoders():
    for entry in STACKS:
        for mixer in ("softmax", "linear"):
            made = entry("small", head="classifier", vocab_size=31, num_classes=2, mixer=mixer)
            assert made.mixer_name == mixer and made.build()(TOKENS).shape == (3, 2)
    few = m.linformer("small", vocab_size=9, mixer_options={"num_slots": 2})
    assert few.mixer_name == "linformer" and few.mixer_options == {"num_slots": 2}
    wide = m.fnet("hybrid_base", vocab_size=9, mixer="local", mixer_options={"window_size": 3})
    assert wide.layers == (m.Layer("local", {"window_size": 3}),) * 12
    made = m.synthesizer("small", head="transformer", vocab_size=9, mixers="local softmax")
    assert [layer.mixer for layer in made.layers][:2] == ["local", "softmax"]
    assert made.decoder_mixer == "softmax"


def test_models_are_listed_with_their_sizes_and_tasks():
    rows = {row["name"]: row for row in overview("models")}
    for entry in (*STACKS, *IMAGES):
        assert rows[entry.name]["presets"] == list(entry.presets)
        assert rows[entry.name]["tasks"] == entry.kinds
        assert entry.name.split("_")[0] in rows[entry.name]["what"].lower().replace("-", "_")
    assert "transformer_base" in rows["transformer"]["presets"]


def masked(entry, preset, vocab_size=32000):
    return entry(preset, head="masked_language_model", vocab_size=vocab_size)


def generator(entry, preset, vocab_size):
    return entry(preset, head="language_model", vocab_size=vocab_size)


def image(entry, preset):
    return entry(preset, image_size=(224, 224), channels=3, num_classes=1000)


def synthesizer(preset):
    return m.synthesizer(preset, head="transformer", vocab_size=BASE.vocab_size)


def transformer(D):
    """Six layers, the embedding shared; matrices, biases of the feed-forward layers, norms."""
    feed_forward = 2 * 4 * D**2 + 5 * D
    encoder, decoder = 4 * D**2 + feed_forward + 4 * D, 8 * D**2 + feed_forward + 6 * D
    return (37_000 * D + 6 * (encoder + decoder)) / 1e6


ROWS = [  # configuration, published millions, tolerance, numbers that the papers count and ours lack
    (m.transformer_base(), transformer(512), 0, 0),
    (m.transformer_base(), 65, 0.035, 0),
    (m.transformer_big(), transformer(1024), 0, 0),
    (m.transformer_big(), 213, 0.01, 0),
    (m.xlnet_base(), 116.718336, 0, -32_000),  # released without their output biases
    (m.xlnet_large(), 360.2688, 0, -32_000),
    (m.transformer_xl_wikitext_base(), 151, 0.0033, 0),
    (m.transformer_xl_enwik8_base(), 41, 0.012, 0),
    (m.transformer_xl_enwik8_large(), 277, 0.0018, 0),
    (generator(m.llama3, "8b", 128256), 8030, 0.001, 0),
    (generator(m.qwen3, "0.6b", 151936), 596, 0.001, 0),
    (generator(m.qwen3, "8b", 151936), 8191, 0.001, 0),
    (generator(m.gemma3, "270m", 262144), 268, 0.001, 0),
    (generator(m.gemma3, "1b", 262144), 1000, 0.001, 0),
    (generator(m.mamba2, "130m", 50288), 129, 0.005, 0),
    (generator(m.mamba2, "2.7b", 50288), 2702, 0.002, 0),
    (m.retnet("1.3b", vocab_size=1), 12 * 24 * 2048**2 / 1e6, 0.001, 0),  # of the layers
    (m.retnet("6.7b", vocab_size=1), 12 * 32 * 4096**2 / 1e6, 0.001, 0),
    (masked(m.longformer, "base", 50265), 148.7, 0.007, 0),
    (masked(m.longformer, "large", 50265), 434.6, 0.007, 0),
    (masked(m.fnet, "base"), 83, 0.007, 768**2),  # the projection after the embeddings
    (masked(m.fnet, "large"), 238, 0.007, 1024**2),
    (masked(m.fnet, "hybrid_base"), 88, 0.007, 768**2),
    (masked(m.fnet, "hybrid_large"), 245, 0.007, 1024**2),
    (masked(m.gmlp, "base"), 130, 0.007, 0),
    (masked(m.gmlp, "large"), 365, 0.007, 0),
    (masked(m.gmlp, "xlarge"), 941, 0.007, 0),
    (masked(m.gmlp, "amlp_base"), 109, 0.007, 0),
    (masked(m.gmlp, "amlp_large"), 316, 0.007, 0),
    (generator(m.reformer, "enwik8", 258), 149, 0.007, 0),
    (masked(m.flash_quad, "base"), 112, 0.007, 0),
    (masked(m.flash, "base"), 112, 0.007, 0),
    (image(m.mlp_mixer, "s_16"), 18, 0.007, -1001 * 512),  # without the head
    (image(m.mlp_mixer, "b_16"), 59, 0.007, -1001 * 768),
    (image(m.mlp_mixer, "l_16"), 207, 0.007, -1001 * 1024),
    (image(m.mlp_mixer, "h_14"), 431, 0.007, -1001 * 1280),
    (image(m.gmlp_image, "ti_16"), 5.9, 0.007, 0),
    (image(m.gmlp_image, "s_16"), 19.5, 0.007, 0),
    (image(m.gmlp_image, "b_16"), 73, 0.007, 0),
    # relative positions have a matrix in each layer
    (generator(m.longformer, "character_small", 256), 41, 0.01, 12 * 512**2),
    (generator(m.longformer, "character_large", 256), 102, 0.01, 30 * 512**2),
    # the Transformer and a learned table; 6 million fewer fixed or factorised, 6 more with the dot product
    (synthesizer("random"), MILLIONS, 0.006, 0),
    (synthesizer("fixed"), MILLIONS - 6, 0.006, 0),
    (synthesizer("factorized_random"), MILLIONS - 6, 0.006, 0),
    (synthesizer("random_vanilla"), MILLIONS + 6, 0.005, 0),
]


@pytest.mark.parametrize("config, millions, tolerance, lacking", ROWS)
def test_parameters_are_as_many_as_published(config, millions, tolerance, lacking):
    found = (m.count_parameters(config) + lacking) / 1e6
    assert found == pytest.approx(millions, rel=tolerance or 1e-12)
