"""The published stacks: composed as they say, of the published size, invariant, saved, compiled, trained."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from regard import MODELS, OptionError, ShapeError, UnknownNameError, UnsupportedError
from regard.cli.describe import overview
from regard.models import (
    Layer,
    Published,
    count_parameters,
    fnet,
    gemma3,
    gmlp,
    gmlp_image,
    linformer,
    llama3,
    longformer,
    mlp_mixer,
    qwen3,
    reformer,
    synthesizer,
    transformer_base,
)
from tests.models.loops import norm
from tests.models.small import prompts, ragged
from tests.models.stacks import stack_oracle

IMAGES = [mlp_mixer, gmlp_image]
DECODERS = [llama3, qwen3, gemma3]  # compared with Transformers' in test_modern
PUBLISHED = [e for e in MODELS.values() if isinstance(e, Published) and e not in IMAGES]
STACKS = [e for e in PUBLISHED if e not in DECODERS]
PAIRS = [(entry, head) for entry in STACKS for head in entry.heads if head != "transformer"]
T = 11


def config(entry: Published, head: str, **changes):
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


def small(entry: Published, head: str, **changes) -> nn.Module:
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
    model = small(reformer, "language_model", residual=residual)
    parameters = list(model.parameters())
    weight = torch.randn(T, 31, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    expected = torch.autograd.grad(
        (stack_oracle(model, tokens()[0]) * weight).sum(), parameters, allow_unused=True
    )
    found = torch.autograd.grad((model(tokens()[:1])[0] * weight).sum(), parameters)
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-9, atol=1e-9)


def test_layers_differ_where_they_are_told_to():
    mixed = (Layer("local", {"window_size": 2}), Layer("reformer", {"num_buckets": 2}))
    model = small(reformer, "language_model", mixer=mixed, mixer_options={}, num_layers=4)
    assert [m.name for m in model.encoder.mixers] == ["local", "reformer"] * 2
    assert model.encoder.mixers[2].options["window_size"] == 2
    torch.testing.assert_close(
        model(tokens())[1], stack_oracle(model, tokens()[1]), rtol=0, atol=1e-9
    )


STREAMED = [(e, h) for e, h in PAIRS if h == "language_model"]


@named(STREAMED)
def test_any_chunking_of_a_stream_is_the_whole(entry, head):
    model = small(entry, head)
    state, parts, at = model.initial_state(3, max_len=T), [], 0
    for length in (1, 4, 6):
        part = slice(at, at + length)
        logits, state = model.extend(tokens()[:, part], state, valid=ragged(T)[:, part])
        parts.append(logits)
        at += length
    whole = model(tokens(), valid=ragged(T))
    torch.testing.assert_close(torch.cat(parts, 1)[ragged(T)], whole[ragged(T)], rtol=0, atol=1e-9)


@pytest.mark.parametrize("entry", STACKS, ids=lambda entry: entry.name)
def test_chunks_change_no_gradient(entry):
    head = entry.heads[-1]
    results = []
    for chunk in (4, None):
        options = {"residual": "plain", "dropout": 0.0, "feed_forward_chunk": chunk}
        model = small(entry, head, **options).train()
        y = model(tokens(), valid=ragged(T))
        y.square().mean().backward()
        results.append([y, *(p.grad for p in model.parameters())])
    for ours, theirs in zip(*results, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


PLAIN: dict[str, Any] = {"mixer": "softmax", "mixer_options": {}}
"""The stack around its mechanism, of which a law says that it compiles."""


def test_reversible_training_compiles_around_its_own_backward():
    model = small(reformer, "language_model", num_layers=1, **PLAIN)
    gradients = []
    for run in (model, torch.compile(model, backend="eager")):
        model.zero_grad()
        run(tokens()).square().mean().backward()
        gradients.append([p.grad.clone() for p in model.parameters()])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-12)


def test_tokens_are_global_by_rule():
    """Token 9 reaches the last place where it is every third, or by its id; padding in front counts for nothing."""
    near = {"mixer": "longformer", "mixer_options": {"window_size": 1, "max_global": 12}}
    given = tokens() % 29 + 1
    given[:, 9] = 30
    T = given.shape[1]
    for rule, at in [
        ({"global_tokens": 0, "global_every": 3}, {*range(0, T, 3)}),
        ({"global_tokens": 0, "global_ids": (30,)}, {9}),
        ({"global_tokens": 2, "global_every": 5}, {0, 1, *range(0, T, 5)}),
    ]:
        model = small(longformer, "masked_language_model", num_layers=1, **near, **rule)
        seen = []
        handle = model.encoder.mixers[0].register_forward_pre_hook(
            lambda _, args, kwargs: seen.append(kwargs["mask"].global_tokens),  # noqa: B023
            with_kwargs=True,
        )
        y = model(given)
        assert {*seen[0][0].nonzero()[:, 0].tolist()} == at
        wide = torch.nn.functional.pad(given, (2, 0), value=30)
        valid = torch.arange(T + 2) >= 2
        padded = model(wide, valid=valid.expand(len(given), -1))[:, 2:]
        torch.testing.assert_close(padded, y, rtol=1e-5, atol=1e-5)
        handle.remove()


def test_global_tokens_are_refused_where_they_cannot_be():
    with pytest.raises(OptionError, match="global_tokens"):
        replace(longformer("small", head="language_model", vocab_size=5), global_tokens=1).build()
    for rule in ({"global_every": 4}, {"global_ids": (7,)}):
        with pytest.raises(OptionError, match="global_every and global_ids"):
            replace(longformer("small", head="language_model", vocab_size=5), **rule).build()
    with pytest.raises(UnsupportedError, match="sinkhorn does not support global_tokens"):
        replace(longformer("small", vocab_size=5, mixer="sinkhorn"), global_every=3).build()
    with pytest.raises(UnsupportedError, match="sinkhorn does not support global_tokens"):
        longformer("small", vocab_size=5, mixer="sinkhorn").build()


# ---------------------------------------------------------------------- sizes


@pytest.mark.parametrize("entry", PUBLISHED, ids=lambda entry: entry.name)
def test_every_size_builds(entry):
    for preset in entry.presets:
        made = entry(preset, vocab_size=97, head=entry.heads[0])
        assert count_parameters(made) > 0
        assert made.max_len >= 256


MILLIONS = [
    (longformer, "base", "masked_language_model", 50265, 148.7),
    (longformer, "large", "masked_language_model", 50265, 434.6),
    (fnet, "base", "masked_language_model", 32000, 83),
    (fnet, "large", "masked_language_model", 32000, 238),
    (fnet, "hybrid_base", "masked_language_model", 32000, 88),
    (fnet, "hybrid_large", "masked_language_model", 32000, 245),
    (gmlp, "base", "masked_language_model", 32000, 130),
    (gmlp, "large", "masked_language_model", 32000, 365),
    (gmlp, "xlarge", "masked_language_model", 32000, 941),
    (gmlp, "amlp_base", "masked_language_model", 32000, 109),
    (gmlp, "amlp_large", "masked_language_model", 32000, 316),
    (reformer, "enwik8", "language_model", 258, 149),
    (MODELS["flash_quad"], "base", "masked_language_model", 32000, 112),
    (MODELS["flash"], "base", "masked_language_model", 32000, 112),
]


@pytest.mark.parametrize("entry, preset, head, vocab_size, millions", MILLIONS)
def test_parameters_are_as_many_as_published(entry, preset, head, vocab_size, millions):
    """FNet's with the projection after its embeddings, which ours leaves out."""
    made = entry(preset, head=head, vocab_size=vocab_size)
    projection = made.dim**2 if entry is fnet else 0
    assert abs((count_parameters(made) + projection) / 1e6 - millions) <= 0.007 * millions


@pytest.mark.parametrize(
    "entry, preset, millions",
    [
        (mlp_mixer, "s_16", 18),
        (mlp_mixer, "b_16", 59),
        (mlp_mixer, "l_16", 207),
        (mlp_mixer, "h_14", 431),
        (gmlp_image, "ti_16", 5.9),
        (gmlp_image, "s_16", 19.5),
        (gmlp_image, "b_16", 73),
    ],
)
def test_parameters_of_image_models(entry, preset, millions):
    """MLP-Mixer's are published without the head."""
    made = entry(preset, image_size=(224, 224), channels=3, num_classes=1000)
    head = 1001 * made.dim if entry is mlp_mixer else 0
    assert abs((count_parameters(made) - head) / 1e6 - millions) <= 0.007 * millions


def test_character_longformers_hold_their_parameters_up_to_positions():
    """Published 41 and 102 million, with a relative position matrix in each layer, which ours do not have."""
    for preset, millions in (("character_small", 41), ("character_large", 102)):
        made = longformer(preset, head="language_model", vocab_size=256)
        layers = made.num_layers * made.dim**2
        count = count_parameters(made) + layers
        assert abs(count / 1e6 - millions) <= 0.01 * millions
        widths = [layer.options["window_size"] for layer in made.layers]
        assert widths == sorted(widths) and (widths[0], widths[-1]) == (512, 8192)


def test_synthesizers_differ_from_the_transformer_as_published():
    """67 million for the Transformer and a learned table, 61 for a fixed or factorised one, 73 for table and dot product."""
    vocab_size = 33708
    base = count_parameters(transformer_base(vocab_size, max_len=256)) / 1e6
    for preset, more in (
        ("random", 0),
        ("fixed", -6),
        ("factorized_random", -6),
        ("random_vanilla", 6),
    ):
        made = synthesizer(preset, head="transformer", vocab_size=vocab_size)
        assert abs(count_parameters(made) / 1e6 - base - more) < 0.4


# ---------------------------------------------------------------------- images


def image(entry: Published, **options):
    torch.manual_seed(0)
    made = entry("small", image_size=(4, 6), channels=3, num_classes=5, vocab_size=9, **options)
    return shaken(replace(made, dim=16).build())


def pixels(B: int = 3) -> Tensor:
    return torch.randint(0, 9, (B, 72), generator=torch.Generator().manual_seed(1))


def test_mlp_mixer_is_its_equations():
    model = image(mlp_mixer)
    p = dict(model.named_parameters())
    expected = []
    for picture in pixels():
        patches = []
        for y in range(0, 4, 2):
            for x in range(0, 6, 2):
                cells = [
                    picture[c * 24 + (y + dy) * 6 + (x + dx)] / 4.0 - 1
                    for dy in range(2)
                    for dx in range(2)
                    for c in range(3)
                ]
                patches.append(
                    p["project.weight"] @ torch.stack(cells).double() + p["project.bias"]
                )
        X = torch.stack(patches)
        for n in range(2):
            at = f"blocks.{n}."
            gathered = p[f"{at}mixer.gather.weight"] @ norm(p, f"{at}mixer_norm", X)
            hidden = nn.functional.gelu(gathered + p[f"{at}mixer.gather.bias"][:, None])
            spread = p[f"{at}mixer.spread.weight"] @ hidden
            U = X + spread + p[f"{at}mixer.spread.bias"][:, None]
            wide = norm(p, f"{at}feed_forward_norm", U) @ p[f"{at}feed_forward.value.weight"].T
            wide = nn.functional.gelu(wide + p[f"{at}feed_forward.value.bias"])
            X = U + wide @ p[f"{at}feed_forward.out.weight"].T + p[f"{at}feed_forward.out.bias"]
        pooled = norm(p, "norm", X).mean(0)
        expected.append(p["head.weight"] @ pooled + p["head.bias"])
    torch.testing.assert_close(model(pixels()), torch.stack(expected), rtol=0, atol=1e-10)


@pytest.mark.parametrize("entry", IMAGES, ids=lambda entry: entry.name)
def test_image_models_read_numbers_and_every_size_builds(entry):
    model = image(entry)
    numbers = pixels().view(3, 3, 4, 6).double() / 4 - 1
    torch.testing.assert_close(model.read(numbers), model(pixels()))
    assert all(
        count_parameters(entry(name, image_size=(224, 224), channels=3, num_classes=7))
        for name in entry.presets
        if name != "small"
    )


def test_image_models_take_other_mixers_and_positions():
    softmax = image(mlp_mixer, mixer="softmax")
    assert [m.name for m in softmax.mixers] == ["softmax"] * 2
    learned = replace(softmax.config, position="axial", position_options={"shape": (2, 3)}).build()
    assert learned(pixels()).shape == (3, 5)


def test_what_an_image_model_cannot_read_is_named():
    model = image(mlp_mixer)
    with pytest.raises(UnsupportedError, match="no pixel is padding"):
        model(pixels(), valid=torch.ones(3, 72, dtype=torch.bool))
    with pytest.raises(ShapeError, match="70 pixels, and an image has 72"):
        model(pixels()[:, :70])
    with pytest.raises(ShapeError, match="outside the vocabulary"):
        model(pixels() + 9)
    with pytest.raises(ShapeError, match=r"images must be \[B, 3, 4, 6\]"):
        model.read(torch.zeros(1, 3, 6, 4))
    with pytest.raises(OptionError, match="multiple of patch_size"):
        mlp_mixer("small", image_size=(5, 6), channels=1, num_classes=2)


# ---------------------------------------------------------------------- use


def test_a_swapped_mixer_is_one_argument():
    for entry in STACKS:
        for mixer in ("softmax", "linear"):
            made = entry("small", head="classifier", vocab_size=31, num_classes=2, mixer=mixer)
            assert made.mixer_name == mixer and made.build()(tokens()).shape == (3, 2)
    few = linformer("small", vocab_size=9, mixer_options={"num_slots": 2})
    assert few.mixer_name == "linformer" and few.mixer_options == {"num_slots": 2}
    wide = fnet("hybrid_base", vocab_size=9, mixer="local", mixer_options={"window_size": 3})
    assert wide.layers == (Layer("local", {"window_size": 3}),) * 12


def test_what_a_published_stack_cannot_be_is_named():
    with pytest.raises(UnknownNameError, match=r"preset of fnet.*Did you mean 'base'"):
        fnet("bas", vocab_size=9)
    with pytest.raises(OptionError, match="fnet: head must be masked_language_model or classifier"):
        fnet("base", head="language_model", vocab_size=9)
    with pytest.raises(OptionError, match="classifier needs num_classes"):
        fnet("base", head="classifier", vocab_size=9)
    with pytest.raises(UnknownNameError, match="option of masked_language_model 'num_classes'"):
        fnet("base", vocab_size=9, num_classes=2)


@pytest.mark.parametrize(
    "change, said",
    [
        ({"mixer": ()}, "tuple of Layers"),
        ({"mixer": ("softmax",)}, "tuple of Layers"),
        ({"mixer": (Layer("softmax"),), "mixer_options": {"num_kv_heads": 1}}, "must be empty"),
        ({"residual": "none"}, "must be one of 'plain'"),
        ({"norm_first": False}, "needs norm_first"),
        ({"checkpoint": True}, "leave checkpoint=False"),
        ({"feed_forward_chunk": 0}, "feed_forward_chunk"),
        ({"global_tokens": -1}, "global_tokens"),
    ],
)
def test_bad_configurations_are_named(change, said):
    with pytest.raises(OptionError, match=said):
        config(reformer, "masked_language_model", **({"mixer_options": {}} | change))


def test_gated_layers_have_no_reversible_form():
    with pytest.raises(UnsupportedError, match="gau does not support residual='reversible'"):
        reformer("small", vocab_size=9, mixer="gau").build()


def test_models_are_listed_with_their_sizes_and_tasks():
    rows = {row["name"]: row for row in overview("models")}
    for entry in (*STACKS, *IMAGES):
        assert rows[entry.name]["presets"] == list(entry.presets)
        assert rows[entry.name]["tasks"] == list(entry.kinds)
        assert entry.name.split("_")[0] in rows[entry.name]["what"].lower().replace("-", "_")
    assert "transformer_base" in rows["transformer"]["presets"]
