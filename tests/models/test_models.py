import pytest
import torch
from torch import nn
from torch.func import functional_call, grad

import regard
from regard.models import (
    Block,
    ClassifierConfig,
    LanguageModelConfig,
    count_parameters,
    layers_per_block,
    match_parameters,
)
from regard.nn import FEED_FORWARDS
from tests.models.small import STACK, STREAMING, VOCAB, classifier, language_model, prompts, ragged


@pytest.mark.parametrize("embedding_norm", [False, True])
def test_poisoned_padding_embedding_reaches_nothing(embedding_norm):
    model = classifier(embedding_norm=embedding_norm)
    text, valid = prompts().clamp(min=1).masked_fill(~ragged(), 0), ragged()
    wanted = model(text, valid=valid)
    model.encoder.embedding.table.weight.data[0] = torch.nan
    logits = model(text, valid=valid)
    torch.testing.assert_close(logits, wanted, rtol=0, atol=0)
    logits.sum().backward()
    grads = [p.grad for p in model.parameters() if p.grad is not None]
    assert all(g.isfinite().all() for g in grads)


@pytest.mark.parametrize("summary", ["mean", "max"])
def test_a_row_without_tokens_is_finite(summary):
    model, valid = classifier(summary=summary), ragged()
    valid[1] = False
    logits = model(prompts(), valid=valid)
    logits.sum().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(logits[1], model.head.bias)


@pytest.mark.parametrize("mixer", STREAMING)
def test_language_model_is_causal_and_tied(mixer):
    model, text = language_model(mixer=mixer), prompts()
    changed = text.clone()
    changed[:, 4:] = (changed[:, 4:] + 5) % VOCAB
    torch.testing.assert_close(model(text)[:, :4], model(changed)[:, :4], rtol=0, atol=1e-12)
    assert (model(text)[:, 4:] - model(changed)[:, 4:]).abs().min(dim=-1).values.max() > 0
    assert sum(p.shape == (VOCAB, 24) for p in model.parameters()) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"mixer": "performer", "checkpoint": True},
        {"mixer": "local", "residual": "reversible", "mixer_options": {"window_size": 2}},
    ],
    ids=["checkpoint", "reversible"],
)
@pytest.mark.parametrize("how", ["export", "strict export", "export in no_grad", "torch.func"])
def test_gradients_are_the_same_where_no_backward_by_hand_is_kept(options, how):
    model, given = classifier(num_layers=1, **options), {"valid": ragged()}
    leaves = dict(model.named_parameters())

    def loss(parameters):
        return functional_call(model, parameters, (prompts(),), given).square().sum()

    expected = torch.autograd.grad(loss(leaves), [*leaves.values()])
    if how == "torch.func":
        found = grad(loss)({name: z.detach() for name, z in leaves.items()})
    else:
        strict = how == "strict export"
        with torch.set_grad_enabled(how != "export in no_grad"):
            exported = torch.export.export(model, (prompts(),), given, strict=strict).module()
        exported(prompts(), **given).square().sum().backward()
        found = {name: z.grad for name, z in exported.named_parameters()}
    for name, own in zip(leaves, expected, strict=True):
        torch.testing.assert_close(found[name], own, rtol=0, atol=1e-10)


def test_post_norm_streams_too():
    model = language_model(norm_first=False, feed_forward="geglu")
    assert isinstance(model.encoder.norm, nn.Identity)
    logits, _ = model.extend(prompts(), model.initial_state(3))
    torch.testing.assert_close(logits, model(prompts()), rtol=0, atol=1e-10)


def test_mixer_with_its_feed_forward_counts_half():
    model = language_model(mixer="gau")
    assert layers_per_block(model.encoder.mixers[0]) == 2
    assert len(model.encoder.blocks) == 4
    assert all(block.feed_forward is None for block in model.encoder.blocks)
    with pytest.raises(regard.OptionError, match="includes its feed-forward"):
        Block(24, regard.build("gau", dim=24), FEED_FORWARDS["gelu"](24))


def test_what_a_mixer_cannot_do_is_refused_with_its_reason():
    """Each mixer's own refusals: test_every_mixer."""
    with pytest.raises(regard.UnsupportedError, match="fnet does not support causal: "):
        language_model(mixer="fnet")
    with pytest.raises(regard.UnsupportedError, match="it is bidirectional"):
        classifier().encoder.initial_state(2)
    with pytest.raises(regard.UnsupportedError, match="linear does not support alibi positions"):
        classifier(mixer="linear", position="alibi")


@pytest.mark.parametrize(
    "change, error, said",
    [
        ({"dim": 25}, regard.OptionError, r"dim \(25\) must be divisible by num_heads \(3\)"),
        ({"num_layers": 0}, regard.OptionError, "num_layers"),
        ({"vocab_size": "many"}, regard.OptionError, "vocab_size"),
        ({"hidden_dim": -1}, regard.OptionError, "hidden_dim"),
        ({"dropout": 1.0}, regard.OptionError, "dropout"),
        ({"mixer": "sofmax"}, regard.UnknownNameError, "Did you mean 'softmax'"),
        ({"feed_forward": "gleu"}, regard.UnknownNameError, "Did you mean"),
        ({"position": "sinus"}, regard.UnknownNameError, "Did you mean 'sinusoidal'"),
        ({"norm": "batch"}, regard.UnknownNameError, "unknown norm"),
        ({"mixer_options": {"num_heads": 2}}, regard.OptionError, "num_heads"),
        ({"mixer_options": {"num_kvheads": 2}}, regard.UnknownNameError, "num_kv_heads"),
        ({"mixer_options": 3}, regard.OptionError, "mapping"),
        ({"position_options": {"bas": 2}}, regard.UnknownNameError, "base"),
        ({"position": "coordinates"}, regard.OptionError, "grid"),
    ],
)
def test_bad_configurations_are_named(change, error, said):
    with pytest.raises(error, match=said):
        language_model(**change)


def test_bad_tokens_are_named():
    model = language_model(position="learned")
    text = prompts()
    for tokens, said in [
        (text.float(), "int64 or int32 ids, got torch.float32"),
        (text[0], r"\[B, T >= 1\], got a tensor \[7\]"),
        (text[:, :0], r"got a tensor \[3, 0\]"),
        ([1, 2], r"got \[1, 2\]"),
        (text + VOCAB, "outside the vocabulary"),
        (text - VOCAB, "token id -"),
        (text.to("meta"), "tokens are on meta, the model on cpu"),
        (prompts(41), r"length \(41\) exceeds max_len \(40\)"),
    ]:
        with pytest.raises(regard.ShapeError, match=said):
            model(tokens)
    assert language_model()(prompts(41)).shape == (3, 41, VOCAB)
    assert torch.equal(model(text.int()), model(text))


@pytest.mark.parametrize("feed_forward", ["gelu", "swiglu"])
@pytest.mark.parametrize("mixer", ["softmax", "linear", "gau"])
@pytest.mark.parametrize("target", [30_000, 100_000, 1_000_000])
def test_parameters_are_matched(mixer, feed_forward, target):
    config = LanguageModelConfig(**STACK, mixer=mixer, feed_forward=feed_forward)
    matched = match_parameters(config, target)
    count = count_parameters(matched)
    assert abs(count - target) <= 0.1 * target
    assert count == sum(p.numel() for p in matched.build().parameters())
    changed = {"mixer_options"} if mixer == "gau" else {"hidden_dim"}
    assert {k for k in vars(config) if vars(config)[k] != vars(matched)[k]} == changed


def test_parameters_that_cannot_be_matched():
    config = ClassifierConfig(num_classes=3, **STACK)
    with pytest.raises(regard.OptionError, match="the nearest has"):
        match_parameters(config, 1000)
    with pytest.raises(regard.OptionError, match="target"):
        match_parameters(config, 0)


def test_counting_leaves_the_random_generator_alone():
    before = torch.get_rng_state()
    count_parameters(LanguageModelConfig(**STACK))
    assert torch.equal(torch.get_rng_state(), before)
