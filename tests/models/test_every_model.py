"""Laws of every model: rows alone and padded, no rows, saved and loaded, compiled, computed again for the backward."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from regard import MODELS, ShapeError
from regard.models import (
    AutoIntConfig,
    ClassifierConfig,
    CompressedInteractionConfig,
    CrossNetworkConfig,
    DINConfig,
    DualEncoderConfig,
    FactorizationMachineConfig,
    HANConfig,
    LanguageModelConfig,
    LogisticRegressionConfig,
    MaskedLanguageModelConfig,
    MMoEConfig,
    ModelConfig,
    PatchClassifierConfig,
    Published,
    TransformerConfig,
    TransformerXLConfig,
    XLNetClassifierConfig,
    XLNetConfig,
    XLNetMatcherConfig,
    count_parameters,
    pad_documents,
    transformer_small,
    transformer_xl_small,
    xlnet_small,
)
from tests.models.small import STACK, VOCAB, prompts, ragged, ragged_targets, targets
from tests.models.table import BATCH, FIELDS, padded, roused, rows

DROPPED = {"dropout": 0.3}
NET = {**STACK, **DROPPED}
SIZES = {"vocab_size": VOCAB, "dim": 12, "num_heads": 2, "dropout": 0.3, "attention_dropout": 0.2}
HAN: dict[str, Any] = {"vocab_size": VOCAB, "num_classes": 3, "dim": 5, "hidden_dim": 4}
HAN |= {"attention_dim": 3, "num_heads": 2}
TABLE: dict[str, Any] = {"fields": FIELDS, "num_tasks": 2}
HISTORY = {**TABLE, "history": ("history", "shops"), "dim": 3, "hidden_dims": (5, 4)}
MIXED = {"num_tasks": 3, "num_experts": 4, "expert_dims": (5, 4), "tower_dim": 3}
PATCHES = {"image_size": (8, 8), "patch_size": 4, "vocab_size": 9, "num_classes": 3}
RICH = {"position": "learned", "feed_forward": "swiglu", "norm": "scale"}
STACKS = [entry for entry in MODELS.values() if isinstance(entry, Published)]


def small(entry: Published) -> ModelConfig:
    head = entry.heads[-1]
    sizes = {"image_size": (8, 8), "vocab_size": 9, "num_classes": 3}
    if head != "patch_classifier":
        sizes = {"vocab_size": VOCAB, "max_len": 24}
        sizes |= {"num_classes": 5} if head == "classifier" else {}
    return entry("small", head=head, **sizes)


CASES: dict[str, ModelConfig] = {
    "classifier": ClassifierConfig(**NET, num_classes=5),
    "classifier_max": ClassifierConfig(**NET, num_classes=5, summary="max", **RICH),
    "language_model": LanguageModelConfig(**NET, **RICH),
    "language_model_linear": LanguageModelConfig(**NET, mixer="linear", norm_first=False),
    "masked_language_model": MaskedLanguageModelConfig(**NET, position="learned"),
    "transformer": TransformerConfig(**NET, position="learned", target_vocab_size=VOCAB),
    "transformer_post": TransformerConfig(**NET, norm_first=False),
    "dual_encoder": DualEncoderConfig(**NET, norm_first=False),
    "transformer_xl": TransformerXLConfig(**SIZES, segment_len=4, mem_len=3),
    "xlnet": XLNetConfig(**SIZES, mem_len=3, num_predict=4),
    "xlnet_whole": XLNetConfig(**SIZES),
    "xlnet_classifier": XLNetClassifierConfig(**SIZES, num_classes=4),
    "xlnet_matcher": XLNetMatcherConfig(**SIZES, num_classes=4),
    "han": HANConfig(**HAN),
    "han_softmax": HANConfig(**HAN, word_encoder="softmax", sentence_encoder="linear"),
    "han_mixed": HANConfig(**HAN, sentence_encoder="softmax"),
    "han_convolution": HANConfig(**HAN, word_encoder="convolution", pool="max"),
    "han_flat": HANConfig(**HAN, flat=True, pool="mean"),
    "han_gated": HANConfig(
        **HAN,
        word_encoder="none",
        sentence_encoder="none",
        pool="attention_query_gate",
        pool_options={"num_queries": 1},
    ),
    "autoint": AutoIntConfig(**TABLE, dim=4, head_dim=3, **DROPPED),
    "autoint_official": AutoIntConfig(**TABLE, dim=4, head_dim=3, official=True),
    "autoint_plus": AutoIntConfig(**TABLE, dim=4, head_dim=3, hidden_dims=(5, 4), **DROPPED),
    "din": DINConfig(**HISTORY),
    "din_code": DINConfig(**HISTORY, pool_options={"interaction": "din_code", "normalise": True}),
    "din_prelu": DINConfig(**HISTORY, pool_options={"activation": "prelu"}, activation="prelu"),
    "din_mean": DINConfig(**HISTORY, pool="mean"),
    "din_softmax": DINConfig(**HISTORY, pool="cross", pool_options={"num_heads": 2}),
    "din_linear": DINConfig(
        **HISTORY, pool="cross", pool_options={"mixer": "linear", "num_heads": 2}
    ),
    "mmoe": MMoEConfig(**MIXED, input_dim=6, gate_dropout=0.2),
    "mmoe_one": MMoEConfig(**MIXED, input_dim=6, gate="one"),
    "mmoe_attention": MMoEConfig(**MIXED, input_dim=6, gate="attention_query"),
    "mmoe_none": MMoEConfig(**(MIXED | {"num_experts": 1}), input_dim=6, gate="none"),
    "mmoe_fields": MMoEConfig(**MIXED, fields=FIELDS),
    "logistic_regression": LogisticRegressionConfig(**TABLE),
    "factorization_machine": FactorizationMachineConfig(**TABLE, dim=3),
    "cross_network": CrossNetworkConfig(**TABLE, dim=3),
    "cross_network_deep": CrossNetworkConfig(**TABLE, dim=3, hidden_dims=(5,)),
    "compressed_interaction": CompressedInteractionConfig(**TABLE, dim=3, maps=(4, 2)),
    "compressed_interaction_deep": CompressedInteractionConfig(**TABLE, dim=3, hidden_dims=(5,)),
    "patch_classifier": PatchClassifierConfig(**PATCHES, dim=12, num_heads=2),
    **{entry.name: small(entry) for entry in STACKS},
}
BREAKS = {
    "han",
    "han_mixed",
    "han_convolution",
    "han_flat",
}  # a packed GRU has a length for each row
DOCUMENTS = [[[3, 1, 4], [1], [5, 9, 2, 6]], [[7]], [[], [2, 7, 1], [], [8, 2]]]
VECTORS = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
PIXELS = torch.randint(0, 9, (3, 64), generator=torch.Generator().manual_seed(1))
PER_TOKEN = {"language_model": 1, "masked_language_model": 1, "transformer": 2}
PER_TOKEN |= {"transformer_xl": 1, "xlnet": 1}


def made(name: str, seed: int = 0, **changes: Any) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = replace(CASES[name], **changes).build().double()
    return roused(model) if "fields" in vars(model.config) else model


def given(name: str, b: int | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with: three rows, padded; or row b alone, without padding."""
    config = CASES[name]
    if config.name == "mmoe" and not getattr(config, "fields", ()):
        return (VECTORS.double() if b is None else VECTORS[b : b + 1].double(),), {}
    if hasattr(config, "fields"):
        three = rows(BATCH, slice(3))
        return (padded(three, 1, 2) if b is None else rows(three, slice(b, b + 1)),), {}
    if config.name == "patch_classifier":
        return (PIXELS if b is None else PIXELS[b : b + 1],), {}
    if config.name == "han":
        picked = DOCUMENTS if b is None else [[s for s in DOCUMENTS[b] if s]]
        tokens, valid = pad_documents(picked)
        return (tokens,), {"valid": valid}

    def cut(x: Tensor, valid: Tensor, fill: int = -1) -> Tensor:
        return x.masked_fill(~valid, fill) if b is None else x[b : b + 1, valid[b]]

    pair = config.name in ("transformer", "dual_encoder", "xlnet_matcher")
    names = (
        ("valid", "target_valid")
        if config.name == "transformer"
        else ("first_valid", "second_valid")
    )
    names = names if pair else ("valid",)
    sides = [(prompts(), ragged()), (targets(), ragged_targets())][: len(names)]
    masks = {} if b is not None else dict(zip(names, (valid for _, valid in sides), strict=True))
    if config.name == "xlnet":
        order = torch.rand(3, 7, generator=torch.Generator().manual_seed(5)).argsort(1)
        masks["order"] = cut(order.masked_fill(order > 3, -1), ragged(), 0)
        if name == "xlnet":
            masks["segments"] = cut(prompts() % 2, ragged(), 0)
    return tuple(cut(*side) for side in sides), masks


def of_row(name: str, y: Tensor, b: int) -> Tensor:
    sides = PER_TOKEN.get(CASES[name].name)
    return y[b] if sides is None else y[b, (ragged() if sides == 1 else ragged_targets())[b]]


def none(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: none(x) for key, x in value.items()}
    return value[:0]


@pytest.mark.parametrize("preset", [transformer_small, transformer_xl_small, xlnet_small])
def test_small_presets_build(preset):
    assert count_parameters(preset(50)) > 50 * 128


def test_every_model_is_covered():
    assert {config.name for config in CASES.values()} | CASES.keys() >= set(MODELS.names())


@pytest.mark.parametrize("name", CASES)
def test_a_row_alone_is_the_row_in_the_batch_and_padding_changes_nothing(name):
    model = made(name).eval()
    args, options = given(name)
    y = model(*args, **options)
    for b in range(3):
        args, options = given(name, b)
        alone = model(*args, **options)[0]
        torch.testing.assert_close(of_row(name, y, b), alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_no_rows_give_no_rows_and_gradients_of_zero(name):
    model = made(name).train()
    args, options = given(name)
    shape = model(*args, **options).shape
    before = deepcopy(model.state_dict())
    y = model(*map(none, args), **none(options))
    assert y.shape == (0, *shape[1:])
    y.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", CASES)
def test_saved_and_loaded_is_the_same(name, tmp_path):
    model, other = made(name).eval(), made(name, seed=1).eval()
    for parameter in other.parameters():
        parameter.data.mul_(0.5)
    args, options = given(name)
    y = model(*args, **options)
    save_model(model, str(tmp_path / "model.safetensors"))
    assert not torch.equal(other(*args, **options), y)
    load_model(other, str(tmp_path / "model.safetensors"))
    assert torch.equal(other(*args, **options), y)


@pytest.mark.parametrize("name", CASES)
def test_compiles_whole(name):
    model = made(name).eval()
    args, options = given(name)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=name not in BREAKS, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args, **options), model(*args, **options))


@pytest.mark.parametrize("name", CASES)
def test_computed_again_for_the_backward_is_the_same(name):
    """Outputs, gradients and moving averages, by the option and around the whole model."""
    args, options = given(name)
    ways = ["plain", "outside"]
    if hasattr(CASES[name], "checkpoint") and name != "reformer":
        ways.append("option")
    found = []
    for way in ways:
        model = made(name, **({"checkpoint": True} if way == "option" else {})).train()
        torch.manual_seed(1)
        if way == "outside":
            y = checkpoint(model, *args, use_reentrant=False, **options)
        else:
            y = model(*args, **options)
        y.square().mean().backward()
        found.append([y, *(p.grad for p in model.parameters()), *model.buffers()])
    for again in found[1:]:
        for one, two in zip(found[0], again, strict=True):
            assert (one is None) == (two is None)
            assert one is None or torch.equal(one, two)


@pytest.mark.parametrize("name", CASES)
def test_no_tokens_are_refused(name):
    args, options = given(name)
    if hasattr(CASES[name], "vocab_size") and CASES[name].name != "patch_classifier":
        options = {key: x for key, x in options.items() if key == "order"}
        with pytest.raises(ShapeError, match=r"T >= 1"):
            made(name)(*(x[..., :0] for x in args), **options)
