"""Mixed stacks, packed documents, the first loss, and the decoders of today beside Transformers'."""

import math
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

import regard.models as m
from tests.models.small import DOCUMENTS, STACK, VOCAB, language_model, prompts, ragged, streamed


def test_a_pattern_is_repeated_over_the_layers():
    mixed = ["linear", ("local", {"window_size": 2}), m.Layer("softmax", {"position": "alibi"})]
    for pattern, wanted in (
        ("gated_delta*2 softmax", "gated_delta gated_delta softmax gated_delta"),
        (mixed, "linear local softmax linear"),
    ):
        model = language_model(mixers=pattern, num_layers=4)
        assert [mixer.name for mixer in model.encoder.mixers] == wanted.split()
    assert model.encoder.mixers[1].options["window_size"] == 2
    assert model.config.mixer_name == "linear, local, softmax"
    # It is the layers that it names, so that what is saved, replaced and compared is one thing.
    short = m.LanguageModelConfig(**STACK, mixers="linear*2 softmax")
    layers = (m.Layer("linear"), m.Layer("linear"), m.Layer("softmax"))
    assert short == m.LanguageModelConfig(**STACK, mixer=layers)
    assert asdict(short)["mixers"] == ()
    assert replace(short, dim=48).layers == short.layers
    assert replace(short, mixer="softmax", mixers="local").mixer == (m.Layer("local"),)


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize("options", [
    {"position": "learned"}, {"mixers": "gated_delta softmax", "checkpoint": True},
    {"mixer": "local", "mixer_options": {"window_size": 2}, "position": "rotary"},
    {"residual": "reversible", "position": "axial"},
    {"masked": True, "mixer": "longformer", "global_tokens": 1},
    {"mixer": "transformer_xl", "mixer_options": {"mem_len": 12}, "position": "none"},
    {"norm_first": False},
])  # fmt: skip
def test_packed_documents_are_separate_rows_and_so_are_those_of_a_stream(options, padded):
    config = {**STACK, **options}
    kind = m.MaskedLanguageModelConfig if config.pop("masked", False) else m.LanguageModelConfig
    torch.manual_seed(0)
    model = kind(**config).build().double()
    tokens = prompts(12)
    valid = ragged(12) if padded else torch.ones(3, 12, dtype=torch.bool)
    weight = torch.randn(3, 12, VOCAB, dtype=torch.float64)
    packed = model(tokens, valid=valid if padded else None, documents=DOCUMENTS)
    (packed * weight)[valid].sum().backward()
    found = {name: parameter.grad for name, parameter in model.named_parameters()}
    model.zero_grad()
    for b, numbers in enumerate(DOCUMENTS):
        for number in numbers[valid[b]].unique():
            columns = (numbers == number) & valid[b]
            alone = model(tokens[b, columns][None])[0]
            torch.testing.assert_close(packed[b, columns], alone, rtol=0, atol=1e-10)
            (alone * weight[b, columns]).sum().backward()
    expected = {name: parameter.grad for name, parameter in model.named_parameters()}
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-9)
    if kind is m.LanguageModelConfig:
        found = streamed(model, tokens, valid)
        torch.testing.assert_close(found[valid], packed[valid], rtol=0, atol=1e-10)


@pytest.mark.parametrize("vocab_size", [31, 257, 5000])
@pytest.mark.parametrize("options", [
    {}, {"position": "rotary"}, {"position": "none", "mixer": "gau"},
    {"norm_first": False, "norm": "scale"}, {"residual": "reversible"},
    {"tied": False, "norm": "rms"}, {"embedding_scale": 1.0, "dim": 256},
    {"dim": 512, "position": "none", "mixer": "linear"},
    {"norm_after": True, "dim": 16, "num_heads": 2}, {"masked": True, "position": "none"},
])  # fmt: skip
def test_a_new_language_model_guesses_uniformly(options, vocab_size):
    torch.manual_seed(0)
    config = {"dim": 128, "num_heads": 4, "num_layers": 2, "max_len": 64, **options}
    kind = m.MaskedLanguageModelConfig if config.pop("masked", False) else m.LanguageModelConfig
    model = kind(vocab_size=vocab_size, **config).build()
    tokens = torch.randint(vocab_size, (8, 65))
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert abs(loss.item() / math.log(vocab_size) - 1) < 0.02
    state = model.state_dict()
    model.encoder.last_norm.reset_parameters()
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)


def rope(theta: float, **more) -> dict:
    return {"rope_parameters": {"rope_type": "default", "rope_theta": theta, **more}}


SIZES = {"vocab_size": 30, "hidden_size": 64, "pad_token_id": 0, "rms_norm_eps": 1e-5}
HEADS = {"num_attention_heads": 4, "intermediate_size": 171}
DENSE = {**HEADS, "num_hidden_layers": 2, "num_key_value_heads": 2}
KINDS = ["linear_attention"] * 3 + ["full_attention"]
RELEASED = {
    "llama3": ("Llama", {**DENSE, **rope(5e5)}),
    "qwen3": ("Qwen3", {**DENSE, **rope(1e6), "head_dim": 32, "tie_word_embeddings": True}),
    "gemma3": ("Gemma3", {
        **HEADS, "num_hidden_layers": 6, "num_key_value_heads": 1, "head_dim": 32, "sliding_window": 32, "query_pre_attn_scalar": 32}),
    "mamba2": ("Mamba2", {
        "num_hidden_layers": 2, "num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 1, "tie_word_embeddings": True}),
    "qwen3_next": ("Qwen3Next", {
        **DENSE, **rope(1e7, partial_rotary_factor=0.25), "num_hidden_layers": 4, "layer_types": KINDS, "head_dim": 32, "num_experts": 0,
        "linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4}),
    "kimi_linear": ("KimiLinear", {
        **HEADS, "num_hidden_layers": 4, "layer_types": KINDS, "kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16,
        "v_head_dim": 16, "num_key_value_heads": 4, "linear_head_dim": 16, "linear_num_heads": 4, "mlp_layer_types": ["dense"] * 4}),
}  # fmt: skip
"""Preset: a class of Transformers with the sizes of our small one."""


def gains(module) -> dict[str, Tensor]:
    """Its tensors; what a file stores less one is whole."""
    from regard.hf.kinds.decoders import GainLessOne

    found = module.state_dict()
    for name, part in module.named_modules():
        if isinstance(part, GainLessOne):
            found[f"{name}.weight".removeprefix(".")] += 1
    return found


@pytest.mark.parametrize("name", RELEASED)
def test_presets_are_the_released_classes(name, monkeypatch):
    """With the weights of the checkpoint, layer by layer; Kimi's gate has a bias here, as in its first code."""
    from tests.hf.small import as_stack, built, widened

    kind, own = RELEASED[name]
    theirs = built(f"{kind}ForCausalLM", {**SIZES, **own})
    for parameter in theirs.parameters():  # away from zeros and ones
        parameter.data.add_(0.1 * torch.randn_like(parameter))
    widened(theirs, monkeypatch)
    loaded = as_stack(theirs)
    ours = m.MODELS[name]("small", vocab_size=30).build().double().eval()
    for block, other in zip(ours.encoder.blocks, loaded.blocks, strict=True):
        missing, unknown = block.load_state_dict(gains(other), strict=False)
        assert not unknown and all(z == "mixer.gate.1.bias" for z in missing)
        for z in missing:
            block.get_parameter(z).data.zero_()
    ours.encoder.norm.load_state_dict(gains(loaded.norm))
    ours.encoder.embedding.table.weight.data.copy_(loaded.embedding.word.weight)
    if ours.own_logits is not None:
        ours.own_logits.load_state_dict(loaded.head.state_dict())
    tokens = torch.randint(30, (2, 70), generator=torch.Generator().manual_seed(1))
    found, expected = ours(tokens), theirs(tokens).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for logits in (found, expected):
        logits.tanh().square().sum().backward()
    tables = ours.encoder.embedding.table, theirs.get_input_embeddings()
    learned = (table.weight.grad[1:] for table in tables)  # they learn nothing of padding
    bound = 1e-3 if name == "kimi_linear" else 1e-4  # theirs has gates in float32
    torch.testing.assert_close(*learned, rtol=bound, atol=bound)
