"""Laws of every model: rows alone and padded, no rows, saved and loaded, compiled, computed again for the backward."""

from copy import deepcopy
from dataclasses import replace
from typing import Any

import pytest
import torch
from safetensors.torch import load_model, save_model
from torch import Tensor
from torch.nn.functional import pad
from torch.utils._pytree import tree_map
from torch.utils.checkpoint import checkpoint

import regard.models as m
from regard import MODELS, ShapeError
from tests.models.small import STACK, VOCAB, prompts, ragged, ragged_targets, targets
from tests.models.table import BATCH, FIELDS, padded, roused, rows

DROPPED = {"dropout": 0.3}
NET = {**STACK, **DROPPED}
SIZES = {"vocab_size": VOCAB, "dim": 12, "num_heads": 2, "dropout": 0.3, "attention_dropout": 0.2}
HAN = dict(vocab_size=VOCAB, num_classes=3, dim=5, hidden_dim=4, attention_dim=3, num_heads=2)
HAN_BARE = {**HAN, "word_encoder": "none", "sentence_encoder": "none"}
TABLE: dict[str, Any] = {"fields": FIELDS, "num_tasks": 2}
TABLE_3 = {**TABLE, "dim": 3}
DEEP = {**TABLE_3, "hidden_dims": (5,)}
AUTOINT = {**TABLE, "dim": 4, "head_dim": 3}
HISTORY = {**TABLE_3, "history": ("history", "shops"), "hidden_dims": (5, 4)}
DIN_CODE = {"interaction": "din_code", "activation": "sigmoid", "normalise": True}
ELEMENTWISE = {"interaction": "elementwise", "activation": "prelu"}
LINEAR = {"mixer": "linear", "num_heads": 2}
DOT = {"score": "dot", "norm_keys": False}
MIXED = {"num_tasks": 3, "num_experts": 4, "expert_dims": (5, 4), "tower_dim": 3}
VECTOR = {**MIXED, "input_dim": 6}
PATCHES = {"image_size": (8, 8), "patch_size": 4, "vocab_size": 9, "num_classes": 3}
PATCHES |= {"dim": 12, "num_heads": 2}
RICH = {"position": "learned", "feed_forward": "swiglu", "norm": "scale"}
STACKS = [entry for entry in MODELS.values() if isinstance(entry, m.Published)]


def small(entry: m.Published, head: str) -> m.ModelConfig:
    sizes = {"image_size": (8, 8), "vocab_size": 9, "num_classes": 3}
    if head != "patch_classifier":
        sizes = {"vocab_size": VOCAB, "max_len": 24}
        sizes |= {"num_classes": 5} if head == "classifier" else {}
    return entry("small", head=head, **sizes)


CASES: dict[str, m.ModelConfig] = {
    "classifier": m.ClassifierConfig(**NET, num_classes=5),
    "classifier_max": m.ClassifierConfig(**NET, num_classes=5, summary="max", **RICH),
    "language_model": m.LanguageModelConfig(**NET, **RICH),
    "language_model_linear": m.LanguageModelConfig(**NET, mixer="linear", norm_first=False),
    "masked_language_model": m.MaskedLanguageModelConfig(**NET, position="learned"),
    "transformer": m.TransformerConfig(**NET, position="learned", target_vocab_size=VOCAB),
    "transformer_post": m.TransformerConfig(**NET, norm_first=False),
    "dual_encoder": m.DualEncoderConfig(**NET, norm_first=False),
    "transformer_xl": m.TransformerXLConfig(**SIZES, segment_len=4, mem_len=3),
    "xlnet": m.XLNetConfig(**SIZES, mem_len=3, num_predict=4),
    "xlnet_whole": m.XLNetConfig(**SIZES),
    "xlnet_classifier": m.XLNetClassifierConfig(**SIZES, num_classes=4),
    "xlnet_matcher": m.XLNetMatcherConfig(**SIZES, num_classes=4),
    "han": m.HANConfig(**HAN),
    "han_softmax": m.HANConfig(**HAN, word_encoder="softmax", sentence_encoder="linear"),
    "han_mixed": m.HANConfig(**HAN, sentence_encoder="softmax"),
    "han_convolution": m.HANConfig(**HAN, word_encoder="convolution", pool="max"),
    "han_flat": m.HANConfig(**HAN, flat=True, pool="mean"),
    "han_gated": m.HANConfig(
        **HAN_BARE, pool="attention_query_gate", pool_options={"num_queries": 1}
    ),
    "autoint": m.AutoIntConfig(**AUTOINT, **DROPPED),
    "autoint_official": m.AutoIntConfig(**AUTOINT, official=True),
    "autoint_plus": m.AutoIntConfig(**AUTOINT, hidden_dims=(5, 4), **DROPPED),
    "din": m.DINConfig(**HISTORY),
    "din_code": m.DINConfig(**HISTORY, pool_options=DIN_CODE),
    "din_prelu": m.DINConfig(**HISTORY, pool_options=ELEMENTWISE, activation="prelu"),
    "din_mean": m.DINConfig(**HISTORY, pool="mean"),
    "din_softmax": m.DINConfig(**HISTORY, pool="cross", pool_options={"num_heads": 2}),
    "din_linear": m.DINConfig(**HISTORY, pool="cross", pool_options=LINEAR),
    "mmoe": m.MMoEConfig(**VECTOR, gate_dropout=0.2),
    "mmoe_one": m.MMoEConfig(**VECTOR, gate="one"),
    "mmoe_attention": m.MMoEConfig(**VECTOR, gate="attention_query"),
    "mmoe_dot": m.MMoEConfig(**VECTOR, gate="attention_query", gate_options=DOT),
    "mmoe_none": m.MMoEConfig(**VECTOR | {"num_experts": 1}, gate="none"),
    "mmoe_fields": m.MMoEConfig(**MIXED, fields=FIELDS),
    "logistic_regression": m.LogisticRegressionConfig(**TABLE),
    "factorization_machine": m.FactorizationMachineConfig(**TABLE_3),
    "cross_network": m.CrossNetworkConfig(**TABLE_3),
    "cross_network_deep": m.CrossNetworkConfig(**DEEP),
    "compressed_interaction": m.CompressedInteractionConfig(**TABLE_3, maps=(4, 2)),
    "compressed_interaction_deep": m.CompressedInteractionConfig(**DEEP, maps=(3,)),
    "patch_classifier": m.PatchClassifierConfig(**PATCHES, position="learned"),
    **{entry.name: small(entry, entry.heads[-1]) for entry in STACKS},
}
BREAKS = {"han", "han_mixed", "han_convolution", "han_flat"}
"""A packed GRU has a length for each row."""
DOCUMENTS = [[[3, 1, 4], [1], [5, 9, 2, 6]], [[7]], [[], [2, 7, 1], [], [8, 2]]]
VECTORS = torch.randn(3, 6, generator=torch.Generator().manual_seed(0))
PIXELS = torch.randint(0, 9, (3, 64), generator=torch.Generator().manual_seed(1))
PER_TOKEN = {"language_model", "masked_language_model", "transformer", "transformer_xl", "xlnet"}
PAIRS = ("first_valid", "second_valid")
MASKS = {"transformer": ("valid", "target_valid"), "dual_encoder": PAIRS, "xlnet_matcher": PAIRS}


def made(name: str, seed: int = 0, **changes: Any) -> torch.nn.Module:
    torch.manual_seed(seed)
    model = replace(CASES[name], **changes).build().double()
    return roused(model) if "fields" in vars(model.config) else model


def given(name: str, b: int | None = None) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """What the model is called with: three rows, padded; or row b alone, without padding."""
    config, at = CASES[name], slice(3) if b is None else slice(b, b + 1)
    if config.name == "mmoe" and not getattr(config, "fields", ()):
        return (VECTORS[at].double(),), {}
    if hasattr(config, "fields"):
        found = rows(BATCH, at)
        return (padded(found, 1, 2) if b is None else found,), {}
    if config.name == "patch_classifier":
        return (PIXELS[at],), {}
    if config.name == "han":
        picked = DOCUMENTS if b is None else [[s for s in DOCUMENTS[b] if s]]
        tokens, valid = m.pad_documents(picked)
        if b is None:  # padding on every side of words and sentences, and between words
            wide = (2, 1, 1, 1)
            tokens, valid = pad(tokens, wide, value=-1), pad(valid, wide)
            order = [0, 2, 1, 3, 4, 6, 5]
            tokens, valid = tokens[..., order], valid[..., order]
        return (tokens,), {"valid": valid}

    def cut(x: Tensor, valid: Tensor, fill: int = -1) -> Tensor:
        return x.masked_fill(~valid, fill) if b is None else x[b : b + 1, valid[b]]

    names = MASKS.get(config.name, ("valid",))
    sides = [(prompts(), ragged()), (targets(), ragged_targets())][: len(names)]
    masks = {} if b is not None else dict(zip(names, (valid for _, valid in sides), strict=True))
    if config.name == "xlnet":
        order = torch.rand(3, 7, generator=torch.Generator().manual_seed(5)).argsort(1)
        masks["order"] = cut(order.masked_fill(order > 3, -1), ragged(), 0)
        if name == "xlnet":
            masks["segments"] = cut(prompts() % 2, ragged(), 0)
    return tuple(cut(*side) for side in sides), masks


def test_every_model_is_covered():
    assert {config.name for config in CASES.values()} | CASES.keys() >= set(MODELS.names())


@pytest.mark.parametrize("name", CASES)
def test_a_row_alone_is_the_row_in_the_batch_and_padding_changes_nothing(name):
    model = made(name).eval()
    args, options = given(name)
    y, kind = model(*args, **options), CASES[name].name
    valid = ragged_targets() if kind == "transformer" else ragged()
    for b in range(3):
        args, options = given(name, b)
        row = y[b, valid[b]] if kind in PER_TOKEN else y[b]
        torch.testing.assert_close(row, model(*args, **options)[0], rtol=0, atol=1e-9)


@pytest.mark.parametrize("name", CASES)
def test_no_rows_give_no_rows_and_gradients_of_zero(name):
    model = made(name).train()
    args, options = given(name)
    shape = model(*args, **options).shape
    before = deepcopy(model.state_dict())
    args, options = tree_map(lambda x: x[:0], (args, options))
    y = model(*args, **options)
    assert y.shape == (0, *shape[1:])
    y.sum().backward()
    assert all(p.grad is None or not p.grad.any() for p in model.parameters())
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@pytest.mark.parametrize("name", [name for name in CASES if "valid" in "".join(given(name)[1])])
def test_a_row_without_tokens_is_finite(name):
    model, (args, options) = made(name).train(), given(name)
    first = next(key for key in options if key.endswith("valid"))
    options[first][1] = False
    y = model(*args, **options)
    if isinstance(model, m.Classifier | m.HAN):
        torch.testing.assert_close(y[1], model.head.bias)
    y.sum().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert y.isfinite().all() and all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("name", CASES)
def test_saved_and_loaded_is_the_same(name, tmp_path):
    model, other = made(name).eval(), made(name, seed=1).eval()
    for tensor in (*other.parameters(), *other.buffers()):
        tensor.data.mul_(0.5 if tensor.is_floating_point() else 1)
    args, options = given(name)
    y = model(*args, **options)
    save_model(model, str(tmp_path / "model.safetensors"))
    assert not torch.equal(other(*args, **options), y)
    load_model(other, str(tmp_path / "model.safetensors"))
    assert torch.equal(other(*args, **options), y)


@pytest.mark.parametrize("name", CASES)
def test_compiles_whole(name):
    """Of layers that alternate, one of each kind."""
    layers = getattr(CASES[name], "mixer", None)
    once = {"mixer": (layers[0], layers[-1]), "num_layers": 2} if isinstance(layers, tuple) else {}
    model = made(name, **once).eval()
    args, options = given(name)
    torch._dynamo.reset()
    compiled = torch.compile(model, fullgraph=name not in BREAKS, backend="eager")
    with torch.no_grad():
        torch.testing.assert_close(compiled(*args, **options), model(*args, **options))
    if name == "patch_classifier":
        with pytest.raises(RuntimeError, match="levels are 0 to"):
            compiled(args[0] + 999)


@pytest.mark.parametrize("name", CASES)
def test_computed_again_for_the_backward_is_the_same(name):
    """Outputs, gradients and moving averages, by the option, around the whole model, and of parameters lent for the call."""
    args, options = given(name)
    again = {"checkpoint": True} if hasattr(CASES[name], "checkpoint") else {}
    again = {} if name == "reformer" else again
    found = []
    for way in ("plain", "outside", "option", "lent"):
        model = made(name, **(again if way == "option" else {})).train()
        torch.manual_seed(1)
        if way == "outside":
            y = checkpoint(model, *args, use_reentrant=False, **options)
        elif way == "lent":
            other = made(name, **again).train()
            for z in (*other.parameters(), *other.buffers()):
                z.data.zero_()
            torch.manual_seed(1)
            lent = dict(model.named_parameters()) | dict(model.named_buffers())
            y = torch.func.functional_call(other, lent, args, options)
        else:
            y = model(*args, **options)
        y.square().mean().backward()
        found.append([y, *(p.grad for p in model.parameters()), *model.buffers()])
    for same in found[1:]:
        torch.testing.assert_close(same, found[0], rtol=0, atol=0)


@pytest.mark.parametrize("name", CASES)
def test_no_tokens_are_refused(name):
    args, options = given(name)
    if hasattr(CASES[name], "vocab_size") and CASES[name].name != "patch_classifier":
        options = {key: x for key, x in options.items() if key == "order"}
        with pytest.raises(ShapeError, match=r"T >= 1"):
            made(name)(*(x[..., :0] for x in args), **options)
