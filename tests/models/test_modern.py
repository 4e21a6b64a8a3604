"""Mixed stacks, packed documents, the first loss, and the decoders of today beside Transformers'."""

import math
from dataclasses import asdict, replace

import pytest
import torch
from torch import Tensor

import regard.models as m
from regard import OptionError, ShapeError
from tests.models.small import STACK, VOCAB, language_model, prompts, ragged


def names(model) -> str:
    return " ".join(mixer.name for mixer in model.encoder.mixers)


def test_a_pattern_is_repeated_over_the_layers():
    wanted = "gated_delta gated_delta gated_delta softmax gated_delta gated_delta"
    assert names(language_model(mixers="gated_delta*3 softmax", num_layers=6)) == wanted
    assert names(language_model(mixers="local softmax", num_layers=3)) == "local softmax local"
    mixers = ["linear", ("local", {"window_size": 2}), m.Layer("softmax", {"position": "alibi"})]
    model = language_model(mixers=mixers, num_layers=4)
    assert names(model) == "linear local softmax linear"
    assert model.encoder.mixers[1].options["window_size"] == 2
    assert model.config.mixer_name == "linear, local, softmax"


def test_a_pattern_is_the_layers_that_it_names():
    """So that what is saved, replaced and compared is one thing."""
    short = m.LanguageModelConfig(**STACK, mixers="linear*2 softmax")
    layers = (m.Layer("linear"), m.Layer("linear"), m.Layer("softmax"))
    assert short == m.LanguageModelConfig(**STACK, mixer=layers)
    assert asdict(short)["mixers"] == ()
    assert replace(short, dim=48).layers == short.layers
    assert replace(short, mixer="softmax", mixers="local").mixer == (m.Layer("local"),)


DOCUMENTS = torch.tensor(
    [[3, 3, 3, 3, 3, 1, 1, 1, 4, 4, 4, 4], [0] * 12, [9, 8, 8, 8, 8, 8, 8, 8, 7, 7, 2, 2]]
)


def rows(tokens: Tensor, valid: Tensor) -> list[tuple[int, Tensor]]:
    """Row, and columns of the valid tokens, of each document."""
    return [
        (b, torch.nonzero((DOCUMENTS[b] == number) & valid[b])[:, 0])
        for b in range(len(tokens))
        for number in DOCUMENTS[b].unique().tolist()
    ]


@pytest.mark.parametrize("padded", [False, True])
@pytest.mark.parametrize(
    "options",
    [
        {"position": "learned"},
        {"mixers": "gated_delta softmax", "checkpoint": True},
        {"mixer": "local", "mixer_options": {"window_size": 2}, "position": "rotary"},
        {"residual": "reversible", "position": "axial"},
        {"masked": True, "mixer": "longformer", "global_tokens": 1},
        {"mixer": "transformer_xl", "mixer_options": {"mem_len": 12}, "position": "none"},
        {"norm_first": False},
    ],
)
def test_packed_documents_are_separate_rows_and_so_are_those_of_a_stream(options, padded):
    """The last token of the stream comes without a number: it belongs to the last document."""
    config = {**STACK, **options}
    kind = m.MaskedLanguageModelConfig if config.pop("masked", False) else m.LanguageModelConfig
    torch.manual_seed(0)
    model = kind(**config).build().double()
    tokens = prompts(12)
    valid = ragged(12) if padded else torch.ones(3, 12, dtype=torch.bool)
    weight = torch.randn(3, 12, VOCAB, dtype=torch.float64)
    packed = model(tokens, valid=valid if padded else None, documents=DOCUMENTS)
    (packed * weight)[valid].sum().backward()
    found = [parameter.grad for parameter in model.parameters()]
    model.zero_grad()
    for b, columns in rows(tokens, valid):
        if len(columns):
            alone = model(tokens[b, columns][None])[0]
            torch.testing.assert_close(packed[b, columns], alone, rtol=0, atol=1e-10)
            (alone * weight[b, columns]).sum().backward()
    for ours, parameter in zip(found, model.parameters(), strict=True):
        torch.testing.assert_close(ours, parameter.grad, rtol=0, atol=1e-9)
    if kind is m.LanguageModelConfig:
        state, parts = model.initial_state(3), []
        for at in (slice(0, 3), slice(3, 4), slice(4, 11), slice(11, 12)):
            numbers = DOCUMENTS[:, at] if at.start < 11 else None
            part, state = model.extend(tokens[:, at], state, valid=valid[:, at], documents=numbers)
            parts.append(part)
        torch.testing.assert_close(torch.cat(parts, 1)[valid], packed[valid], rtol=0, atol=1e-10)


def test_max_len_bounds_a_document():
    model = language_model(position="learned", max_len=7)
    assert model(prompts(12)[[0, 0]], documents=DOCUMENTS[[0, 0]]).shape == (2, 12, VOCAB)
    with pytest.raises(ShapeError, match=r"length \(12\) exceeds max_len \(7\)"):
        model(prompts(12), documents=DOCUMENTS)
    with pytest.raises(ShapeError, match=r"length \(12\) exceeds max_len \(7\)"):
        model(prompts(12))


@pytest.mark.parametrize("vocab_size", [31, 257, 5000])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"position": "rotary"},
        {"position": "none", "mixer": "gau"},
        {"norm_first": False, "norm": "scale"},
        {"residual": "reversible"},
        {"tied": False, "norm": "rms"},
        {"embedding_scale": 1.0, "dim": 256},
        {"dim": 512, "position": "none", "mixer": "linear"},
        {"norm_after": True, "dim": 16, "num_heads": 2},
    ],
)
def test_a_new_language_model_guesses_uniformly(options, vocab_size):
    torch.manual_seed(0)
    config = {"dim": 128, "num_heads": 4, "num_layers": 2, "max_len": 64, **options}
    model = m.LanguageModelConfig(vocab_size=vocab_size, **config).build()
    tokens = torch.randint(vocab_size, (8, 65))
    logits = model(tokens[:, :-1])
    loss = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    assert abs(loss.item() / math.log(vocab_size) - 1) < 0.02
    state = model.state_dict()
    model.encoder.last_norm.reset_parameters()
    torch.testing.assert_close(model.state_dict(), state, rtol=0, atol=0)


def test_a_new_masked_language_model_guesses_uniformly():
    torch.manual_seed(0)
    model = m.MaskedLanguageModelConfig(vocab_size=257, max_len=64).build()
    tokens = torch.randint(257, (8, 64))
    loss = torch.nn.functional.cross_entropy(model(tokens).flatten(0, 1), tokens.flatten())
    assert abs(loss.item() / math.log(257) - 1) < 0.02


SIZES = {
    "vocab_size": VOCAB,
    "hidden_size": 24,
    "intermediate_size": 32,
    "num_attention_heads": 3,
    "num_key_value_heads": 1,
    "head_dim": 10,
    "rms_norm_eps": 1e-5,
    "attn_implementation": "eager",
    "initializer_range": 0.2,
}
WORDS = {
    "model.embed_tokens": "encoder.embedding.table",
    "model.norm": "encoder.norm",
    "lm_head": "own_logits",
    "model.layers": "encoder.blocks",
    "self_attn.q_proj": "mixer.heads.query",
    "self_attn.k_proj": "mixer.heads.key",
    "self_attn.v_proj": "mixer.heads.value",
    "self_attn.o_proj": "mixer.heads.out",
    "self_attn.q_norm": "mixer.heads.query_norm",
    "self_attn.k_norm": "mixer.heads.key_norm",
    "input_layernorm": "mixer_norm",
}
PLAIN = {
    "post_attention_layernorm": "feed_forward_norm",
    "mlp.gate_proj": "feed_forward.gate",
    "mlp.up_proj": "feed_forward.value",
    "mlp.down_proj": "feed_forward.out",
}
GEMMA = {
    "pre_feedforward_layernorm": "feed_forward_norm",
    "post_feedforward_layernorm": "feed_forward.1",
    "post_attention_layernorm": "mixer_after",
    "mlp.gate_proj": "feed_forward.0.gate",
    "mlp.up_proj": "feed_forward.0.value",
    "mlp.down_proj": "feed_forward.0.out",
}
SAME = {"vocab_size": VOCAB, "dim": 24, "num_heads": 3, "hidden_dim": 48}


def ours_and_theirs(name: str, tied: bool):
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    if name == "gemma3":
        theirs = transformers.Gemma3ForCausalLM(
            transformers.Gemma3TextConfig(
                **SIZES, num_hidden_layers=8, sliding_window=4, query_pre_attn_scalar=10
            )
        )
        made = m.gemma3("small", **SAME, num_layers=8)
        near, far = made.mixer[0], made.mixer[-1]
        own = {"head_dim": 10}
        near = m.Layer("local", {**near.options, **own, "window_size": 3})
        ours = replace(made, mixer=(near,) * 5 + (m.Layer("softmax", {**far.options, **own}),))
    else:
        base = 5e5 if name == "llama3" else 1e6
        kind = "Llama" if name == "llama3" else "Qwen3"
        config = getattr(transformers, f"{kind}Config")(
            **SIZES,
            num_hidden_layers=2,
            tie_word_embeddings=tied,
            rope_parameters={"rope_type": "default", "rope_theta": base},
        )
        theirs = getattr(transformers, f"{kind}ForCausalLM")(config)
        made = (m.llama3 if name == "llama3" else m.qwen3)("small", **SAME, tied=tied)
        options = {**made.mixer_options, "num_kv_heads": 1, "head_dim": 10}
        ours = replace(made, mixer_options=options)
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return ours.build().double(), theirs.double()


def renamed(name: str, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
    """Tensors under our names."""
    found = {}
    for theirs, tensor in tensors.items():
        ours = theirs
        for old, new in {**WORDS, **(GEMMA if name == "gemma3" else PLAIN)}.items():
            ours = ours.replace(f"{old}.", f"{new}.")
        found[ours] = tensor
    return found


@pytest.mark.parametrize(
    "name, tied", [("llama3", False), ("qwen3", True), ("qwen3", False), ("gemma3", True)]
)
def test_presets_are_the_released_models(name, tied):
    """Logits and all gradients; their norms and angles are in float32, which bounds the difference."""
    ours, theirs = ours_and_theirs(name, tied)
    given = renamed(name, dict(theirs.named_parameters()))
    less = {n for n, p in given.items() if name == "gemma3" and p.dim() == 1}
    ours.load_state_dict({n: 1 + p if n in less else p for n, p in given.items()})
    tokens = torch.randint(VOCAB, (2, 13), generator=torch.Generator().manual_seed(1))
    found, expected = ours(tokens), theirs(tokens).logits
    torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)
    for logits in (found, expected):
        logits.tanh().square().sum().backward()
    gradients = {n: p.grad for n, p in renamed(name, dict(theirs.named_parameters())).items()}
    for n, parameter in ours.named_parameters():
        torch.testing.assert_close(parameter.grad, gradients[n], rtol=1e-4, atol=1e-4, msg=n)


def of_transformers(name: str):
    """The class of Transformers with the sizes of our small preset, of 30 tokens."""
    transformers = pytest.importorskip("transformers")
    sizes = {"vocab_size": 30, "hidden_size": 64, "pad_token_id": 0, "rms_norm_eps": 1e-5}
    heads = {"num_attention_heads": 4, "num_hidden_layers": 4, "intermediate_size": 171}
    pattern = ["linear_attention"] * 3 + ["full_attention"]
    if name == "mamba2":
        own = {"num_hidden_layers": 2, "num_heads": 4, "head_dim": 32, "state_size": 16, "n_groups": 1, "tie_word_embeddings": True}  # fmt: skip
        kind = "Mamba2"
    elif name == "qwen3_next":
        turned = {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25}
        delta = {"linear_key_head_dim": 16, "linear_value_head_dim": 16, "linear_num_key_heads": 2, "linear_num_value_heads": 4}  # fmt: skip
        own = {**heads, **delta, "num_key_value_heads": 2, "head_dim": 32, "num_experts": 0, "rope_parameters": turned, "layer_types": pattern}  # fmt: skip
        kind = "Qwen3Next"
    else:
        latent = {"kv_lora_rank": 32, "qk_rope_head_dim": 8, "qk_nope_head_dim": 16, "v_head_dim": 16}  # fmt: skip
        own = {**heads, **latent, "num_key_value_heads": 4, "linear_head_dim": 16, "linear_num_heads": 4, "mlp_layer_types": ["dense"] * 4, "layer_types": pattern}  # fmt: skip
        kind = "KimiLinear"
    torch.manual_seed(0)
    config = getattr(transformers, f"{kind}Config")(**{**sizes, **own})
    return getattr(transformers, f"{kind}ForCausalLM")(config).eval()


def gains(module) -> dict[str, Tensor]:
    """Its tensors; what a file stores less one is whole."""
    from regard.hf.kinds.decoders import GainLessOne

    found = module.state_dict()
    for name, part in module.named_modules():
        if isinstance(part, GainLessOne):
            found[f"{name}.weight".removeprefix(".")] += 1
    return found


@pytest.mark.parametrize("name", ["mamba2", "qwen3_next", "kimi_linear"])
def test_presets_with_states_are_the_released_classes(name):
    """With the weights of the checkpoint, layer by layer; Kimi's gate has a bias here, as in its first code."""
    theirs = of_transformers(name)
    import regard.hf

    loaded = regard.hf.load(theirs.state_dict(), theirs.config.to_dict())
    ours = m.MODELS[name]("small", vocab_size=30).build().eval()
    for block, other in zip(ours.encoder.blocks, loaded.blocks, strict=True):
        missing, unknown = block.load_state_dict(gains(other), strict=False)
        assert not unknown and all(z == "mixer.gate.1.bias" for z in missing)
    ours.encoder.norm.load_state_dict(gains(loaded.norm))
    with torch.no_grad():
        ours.encoder.embedding.table.weight.copy_(loaded.embedding.word.weight)
        for n, parameter in ours.named_parameters():
            parameter.mul_(not n.endswith("gate.1.bias"))
    if ours.own_logits is not None:
        ours.own_logits.load_state_dict(loaded.head.state_dict())
    tokens = torch.randint(30, (2, 70), generator=torch.Generator().manual_seed(1))
    torch.testing.assert_close(ours(tokens), theirs(tokens).logits, rtol=1e-4, atol=1e-4)


def test_retnets_layers_have_twelve_squares_of_the_width_each():
    for preset, dim, layers in (("1.3b", 2048, 24), ("6.7b", 4096, 32)):
        count = m.count_parameters(m.retnet(preset, vocab_size=1))
        assert count == pytest.approx(12 * dim**2 * layers, rel=1e-3)


def test_a_stack_without_feed_forward_layers_is_its_mixers():
    model = language_model(hidden_dim=0, num_layers=2)
    assert all(block.feed_forward is None for block in model.encoder.blocks)
    with pytest.raises(OptionError, match="needs a feed-forward layer"):
        language_model(hidden_dim=0, residual="reversible")
