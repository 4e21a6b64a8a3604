"""The published stacks: composed as they say, of the published size, invariant, saved, compiled, trained."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import regard.models as m
from regard import MODELS
from regard.cli.describe import overview
from tests.models.small import prompts, ragged
from tests.models.stacks import stack_oracle

IMAGES = [m.mlp_mixer, m.gmlp_image]
DECODERS = [m.llama3, m.qwen3, m.gemma3, m.retnet, m.mamba2, m.qwen3_next, m.kimi_linear]
"""Compared with Transformers in test_modern, RetNet by its count."""
PUBLISHED = [e for e in MODELS.values() if isinstance(e, m.Published) and e not in IMAGES]
STACKS = [e for e in PUBLISHED if e not in DECODERS]
PAIRS = [(entry, head) for entry in STACKS for head in entry.heads if head != "transformer"]
T = 11


def config(entry: m.Published, head: str, **changes):
    classes = {"num_classes": 5} if head == "classifier" else {}
    made = entry("small", head=head, vocab_size=31, **classes, max_len=24)
    return replace(made, dim=16, num_heads=1 if made.num_heads == 1 else 2, **changes)


def shaken(model: nn.Module) -> nn.Module:
    """In double precision, its parameters away from special values such as zero and one."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn(parameter.shape, generator=generator))
    return model.double().eval()


def small(entry: m.Published, head: str, **changes) -> nn.Module:
    torch.manual_seed(0)
    return shaken(config(entry, head, **changes).build())


def tokens() -> Tensor:
    return prompts(T)


def named(pairs):
    return pytest.mark.parametrize(
        "entry, head", pairs, ids=[f"{entry.name}-{head}" for entry, head in pairs]
    )


@named(PAIRS)
def test_each_row_is_what_the_parts_say_and_padding_changes_nothing(entry, head):
    model = small(entry, head)
    found = model(tokens().masked_fill(~ragged(T), -1), valid=ragged(T))
    for row in range(3):
        valid = ragged(T)[row]
        expected = stack_oracle(model, tokens()[row, valid])
        got = found[row] if head == "classifier" else found[row, valid]
        torch.testing.assert_close(got, expected, rtol=0, atol=1e-9)
    with torch.no_grad():  # without a backward to prepare, reversible blocks take another way
        kept = model(tokens().masked_fill(~ragged(T), -1), valid=ragged(T))
    torch.testing.assert_close(kept, found, rtol=0, atol=1e-12)


@pytest.mark.parametrize("residual", ["reversible", "reversible_mean"])
def test_gradients_of_a_reversible_stack_are_those_of_its_equations(residual):
    model = small(m.reformer, "language_model", residual=residual)
    parameters = list(model.parameters())
    weight = torch.randn(T, 31, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = torch.autograd.grad(
        (stack_oracle(model, tokens()[0]) * weight).sum(), parameters, allow_unused=True
    )
    found = torch.autograd.grad((model(tokens()[:1])[0] * weight).sum(), parameters)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_layers_differ_where_they_are_told_to():
    mixed = (m.Layer("local", {"window_size": 2}), m.Layer("reformer", {"num_buckets": 2}))
    model = small(m.reformer, "language_model", mixer=mixed, mixer_options={}, num_layers=4)
    assert [m.name for m in model.encoder.mixers] == ["local", "reformer"] * 2
    assert model.encoder.mixers[2].options["window_size"] == 2
    torch.testing.assert_close(
        model(tokens())[1], stack_oracle(model, tokens()[1]), rtol=0, atol=1e-9
    )


PLAIN: dict[str, Any] = {"mixer": "softmax", "mixer_options": {}}
"""The stack around its mechanism, of which a law says that it compiles."""


def test_reversible_training_compiles_around_its_own_backward():
    model = small(m.reformer, "language_model", num_layers=1, **PLAIN)
    gradients = []
    for run in (model, torch.compile(model, backend="eager")):
        model.zero_grad()
        run(tokens()).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_the_first_tokens_are_global():
    """Padding in front counts for nothing."""
    near = {"mixer": "longformer", "mixer_options": {"window_size": 1, "max_global": 12}}
    given = tokens()
    T = given.shape[1]
    model = small(m.longformer, "masked_language_model", num_layers=1, global_tokens=2, **near)
    seen = []
    model.encoder.mixers[0].register_forward_pre_hook(
        lambda _, args, kwargs: seen.append(kwargs["mask"].global_tokens), with_kwargs=True
    )
    y = model(given)
    assert seen[0][0].nonzero()[:, 0].tolist() == [0, 1]
    wide = torch.nn.functional.pad(given, (2, 0), value=30)
    valid = torch.arange(T + 2) >= 2
    padded = model(wide, valid=valid.expand(len(given), -1))[:, 2:]
    torch.testing.assert_close(padded, y, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("entry", [*PUBLISHED, *IMAGES], ids=lambda entry: entry.name)
def test_every_size_builds(entry):
    sizes = {"vocab_size": 97, "head": entry.heads[0]}
    if entry in IMAGES:
        sizes = {"image_size": (224, 224), "channels": 3, "num_classes": 7}
    for preset in entry.presets:
        made = entry(preset, **sizes)
        assert m.count_parameters(made) > 0
        assert entry in IMAGES or made.max_len >= 256


def image(entry: m.Published, **options):
    torch.manual_seed(0)
    made = entry("small", image_size=(4, 6), channels=3, num_classes=5, vocab_size=9, **options)
    return shaken(replace(made, dim=16).build())


def pixels(B: int = 3) -> Tensor:
    return torch.randint(0, 9, (B, 72), generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("entry", IMAGES, ids=lambda entry: entry.name)
def test_image_models_are_what_the_parts_say_and_read_numbers(entry):
    model = image(entry)
    expected = torch.stack([stack_oracle(model, picture) for picture in pixels()])
    torch.testing.assert_close(model(pixels()), expected, rtol=0, atol=1e-10)
    numbers = pixels().view(3, 3, 4, 6).double() / 4 - 1
    torch.testing.assert_close(model.read(numbers), model(pixels()))


def test_image_models_take_other_mixers_and_positions():
    softmax = image(m.mlp_mixer, mixer="softmax")
    assert [m.name for m in softmax.mixers] == ["softmax"] * 2
    learned = replace(softmax.config, position="axial", position_options={"shape": (2, 3)}).build()
    assert learned(pixels()).shape == (3, 5)


def test_a_swapped_mixer_is_one_argument():
    for entry in STACKS:
        for mixer in ("softmax", "linear"):
            made = entry("small", head="classifier", vocab_size=31, num_classes=2, mixer=mixer)
            assert made.mixer_name == mixer and made.build()(tokens()).shape == (3, 2)
    few = m.linformer("small", vocab_size=9, mixer_options={"num_slots": 2})
    assert few.mixer_name == "linformer" and few.mixer_options == {"num_slots": 2}
    wide = m.fnet("hybrid_base", vocab_size=9, mixer="local", mixer_options={"window_size": 3})
    assert wide.layers == (m.Layer("local", {"window_size": 3}),) * 12


def test_models_are_listed_with_their_sizes_and_tasks():
    rows = {row["name"]: row for row in overview("models")}
    for entry in (*STACKS, *IMAGES):
        assert rows[entry.name]["presets"] == list(entry.presets)
        assert rows[entry.name]["tasks"] == list(entry.kinds)
        assert entry.name.split("_")[0] in rows[entry.name]["what"].lower().replace("-", "_")
    assert "transformer_base" in rows["transformer"]["presets"]
