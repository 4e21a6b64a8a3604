"""Every mixer of the catalogue in both models, or refused with its reason; what single models have besides the laws of all."""

import shutil
from dataclasses import replace
from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounter
from torch.func import functional_call, grad

import regard.models as m
from regard import MIXERS, UnsupportedError, build
from tests.command import python
from tests.models.small import STACK, VOCAB, classifier, language_model, prompts, ragged, targets


@pytest.mark.parametrize("mixer", MIXERS.names())
def test_generates_what_forward_says_and_padding_changes_nothing(mixer):
    can = build(mixer, dim=24, num_heads=3, max_len=40).capabilities
    if not can.causal or can.streaming != "exact":
        with pytest.raises(UnsupportedError, match=f"^{mixer} does not support"):
            language_model(mixer=mixer).generate(prompts(), max_new_tokens=2)
        return
    model = language_model(mixer=mixer)
    text, generate = prompts(), partial(model.generate, max_new_tokens=6)
    for _ in range(6):
        text = torch.cat([text, model(text)[:, -1:].argmax(-1)], dim=1)
    assert torch.equal(generate(prompts()), text[:, 7:])
    if can.padding:
        alone = [generate(prompts()[[row]][:, ragged()[row]]) for row in range(3)]
        assert torch.equal(generate(prompts(), valid=ragged()), torch.cat(alone))


@pytest.mark.parametrize("mixer", MIXERS.names())
def test_classifies_with_parameters_matched(mixer):
    if not MIXERS[mixer].capabilities.bidirectional:
        with pytest.raises(UnsupportedError, match=f"^{mixer} does not support bidirectional"):
            classifier(mixer=mixer)
        return
    model = classifier(mixer=mixer)
    assert model(prompts()).shape == (3, 5)
    config, includes_ffn = model.config, model.encoder.mixers[0].capabilities.includes_ffn
    assert m.count_parameters(config) == sum(p.numel() for p in model.parameters())
    for target, feed_forward in ((30_000, "gelu"), (1_000_000, "swiglu")):
        config = replace(config, feed_forward=feed_forward)
        matched = m.match_parameters(config, target)
        assert abs(m.count_parameters(matched) - target) <= 0.1 * target
        (changed,) = (name for name in vars(config) if vars(config)[name] != vars(matched)[name])
        assert changed == ("mixer_options" if includes_ffn else "hidden_dim")


def test_layers_with_heads_of_their_own_are_matched():
    config = m.MODELS["qwen3_next"]("small", vocab_size=50)
    assert m.count_parameters(m.match_parameters(config, 200_000)) == pytest.approx(2e5, rel=0.1)


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


NARROW = {"mixer": "local", "mixer_options": {"window_size": 2}}
BY_HAND = {"checkpoint": {"mixer": "performer", "checkpoint": True}}
BY_HAND["reversible"] = NARROW | {"residual": "reversible"}


@pytest.mark.parametrize("what", BY_HAND)
@pytest.mark.parametrize("how", ["export", "strict export", "export in no_grad", "torch.func"])
def test_gradients_are_the_same_where_no_backward_by_hand_is_kept(what, how):
    model, given = classifier(num_layers=1, **BY_HAND[what]), {"valid": ragged()}
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
    torch.testing.assert_close([found[name] for name in leaves], [*expected], rtol=0, atol=1e-10)


def test_corruption_is_eight_one_one_and_spares_what_it_must():
    text = torch.randint(2, 50, (200, 100), generator=torch.Generator().manual_seed(0))
    valid = torch.rand(200, 100, generator=torch.Generator().manual_seed(1)) < 0.9
    given = {"mask_token": 1, "vocab_size": 50, "valid": valid, "never": (2, 3)}
    made = m.corrupt(text, generator=torch.Generator().manual_seed(2), **given)
    again = m.corrupt(text, generator=torch.Generator().manual_seed(2), **given)
    assert torch.equal(made.tokens, again.tokens) and torch.equal(made.labels, again.labels)
    asked = made.labels != -100
    spared = ~valid | (text == 2) | (text == 3)
    assert not asked[spared].any() and torch.equal(made.labels[asked], text[asked])
    assert torch.equal(made.tokens[~asked], text[~asked])
    assert abs(float(asked[~spared].float().mean()) - 0.15) < 0.01
    hidden = float((made.tokens[asked] == 1).float().mean())
    kept = float((made.tokens[asked] == text[asked]).float().mean())
    assert abs(hidden - 0.8) < 0.025 and abs(kept - 0.1) < 0.02
    everything = m.corrupt(text, mask_token=1, vocab_size=50, rate=1.0)
    assert torch.equal(everything.labels, text)
    assert m.corrupt(text.int(), mask_token=1, vocab_size=50).tokens.dtype == torch.int32


def test_pairs_are_compared_by_the_four_features():
    torch.manual_seed(0)
    model = m.DualEncoderConfig(**STACK, num_classes=3, mlp_dim=10).build().double().eval()
    first, second = prompts(), targets()
    e1, e2 = model.encoder(first).mean(1), model.encoder(second).mean(1)
    one, _, two, _, out = model.head
    x = one(torch.cat([e1, e2, e1 * e2, e1 - e2], dim=1)).relu()
    wanted = out(two(x).relu())
    torch.testing.assert_close(model(first, second), wanted, rtol=0, atol=1e-11)
    assert two.weight.shape == (5, 10) and wanted.shape == (3, 3)
    assert not torch.allclose(model(second, first), wanted)


@pytest.mark.parametrize(
    "mixer", "softmax linear local gau performer kimi_delta gated_delta".split()
)
def test_one_compiled_program_serves_any_length(mixer):
    """Below and above a chunk, a window and a tile; forward and backward."""
    torch._dynamo.reset()
    model, counter = language_model(mixer=mixer, max_len=400), CompileCounter()
    compiled = torch.compile(model, backend=counter, dynamic=True)
    for length in (33, 64, 7, 301):
        table, tokens = model.encoder.embedding.table.weight, prompts(length)
        losses = (run(tokens).square().sum() for run in (compiled, model))
        torch.testing.assert_close(*(torch.autograd.grad(loss, table) for loss in losses))
    assert counter.frame_count == 1


RUN = """
import sys, torch
program = torch._inductor.aoti_load_package(sys.argv[1])
tokens, want = torch.load(sys.argv[2])
torch.testing.assert_close(program(tokens), want)
assert "regard" not in sys.modules
"""


@pytest.mark.skipif(shutil.which("g++") is None, reason="AOTInductor needs a C++ compiler")
def test_a_classifier_runs_ahead_of_time_compiled_in_another_process(tmp_path):
    sizes = {"vocab_size": VOCAB, "num_classes": 3, "dim": 16, "num_heads": 2, "num_layers": 1}
    model = m.ClassifierConfig(**sizes, max_len=64, mixer="linear").build().eval()
    free = {0: torch.export.Dim("B", min=2, max=64), 1: torch.export.Dim("T", min=2, max=64)}
    with torch.no_grad():
        made = torch.export.export(model, (prompts(9),), dynamic_shapes={"tokens": free})
        torch._inductor.aoti_compile_and_package(made, package_path=str(tmp_path / "made.pt2"))
        tokens = prompts(41).repeat(2, 1)
        torch.save((tokens, model(tokens)), tmp_path / "given.pt")
    done = python("-c", RUN, tmp_path / "made.pt2", tmp_path / "given.pt")
    assert done.returncode == 0, done.stderr


def test_models_take_the_mixin_of_huggingface_hub(tmp_path):
    """save_pretrained, which push_to_hub sends, and from_pretrained of a class of the user's, with any pattern of layers."""
    hub = pytest.importorskip("huggingface_hub", reason="not installed: pip install 'regard[hf]'")

    class Shared(m.LanguageModel, hub.PyTorchModelHubMixin):
        pass

    config = m.LanguageModelConfig(**STACK, mixers=["linear", ("local", {"window_size": 2})])
    model = Shared(config).eval()
    model.save_pretrained(tmp_path)
    again = Shared.from_pretrained(tmp_path)
    assert again.config == config
    torch.testing.assert_close(again(prompts()), model(prompts()), rtol=0, atol=0)
