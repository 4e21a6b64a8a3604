"""Mechanisms inside Transformers' own models: masks, caches, gradients, generation, training."""

from functools import partial

import pytest
import torch

from tests.hf import small
from tests.hf.small import greedy, inputs, model, transformers
from tests.refused import assert_refused

import regard.hf  # isort: skip
from regard import OptionError, UnknownNameError, UnsupportedError
from regard.hf import AttentionConfig
from regard.hf.attention import AttentionFunction
from regard.hf.masks import TokenMask, token_mask

NAMES = regard.hf.register()
ONE_AXIS = "local strided global head_mix head_groups bigbird mixed_chunk".split()
WINDOW = AttentionConfig("local", {"window_size": 3}, cross=AttentionConfig("softmax"))
PLACED = {"luong_local": {"window_size": 3, "score": "dot"}}
PLACED["nystrom"] = {"num_landmarks": 4, "conv_size": None}
regard.hf.register("window", WINDOW)
regard.hf.register("placed", AttentionConfig("luong_local", PLACED["luong_local"]))
SORTING = AttentionConfig("sinkhorn", {"block_size": 3, "sort_net": "attention"})
regard.hf.register("sorting", SORTING)


def valid_logits(name, made, given):
    logits = made(**given).logits
    mask = given.get("attention_mask")
    return logits if mask is None or name in small.SEQ2SEQ_MODELS else logits[mask.bool()]


@pytest.mark.parametrize("padded", [None, "right", "left"])
@pytest.mark.parametrize("name", small.ATTENDING)
def test_softmax_is_the_models_own(name, padded):
    """Some models compute positions, norms and softmax in float32 whatever their type."""
    found = []
    for implementation in ("sdpa", "regard_softmax"):
        made, given = model(name, implementation), inputs(name, padded)
        logits = valid_logits(name, made, given)
        logits.sin().sum().backward()
        found.append((logits, [p.grad for p in made.parameters() if p.grad is not None]))
    torch.testing.assert_close(found[1], found[0], rtol=1e-5, atol=1e-7)


CACHED = [
    *(("llama", implementation) for implementation in NAMES),
    *((name, "regard_softmax") for name in ("mistral", "bart", "t5")),
    *(("bart", implementation) for implementation in ("regard_linear", "regard_window")),
]


@pytest.mark.parametrize("name, implementation", CACHED)
def test_caches_change_nothing(name, implementation):
    """The dynamic one and the static one in `generate`; and several new tokens, so that none depends on a later one."""
    made, given = model(name, implementation), inputs(name, "left")
    given.pop("decoder_input_ids", None)
    given |= {"output_logits": True, "return_dict_in_generate": True, "disable_compile": True}
    caches = {"use_cache": False}, *({"cache_implementation": c} for c in ("dynamic", "static"))
    want, *found = (torch.stack(greedy(made, new=3, **given, **how).logits) for how in caches)
    for got in found:
        torch.testing.assert_close(got, want)
    ids, right = given["input_ids"], inputs("llama", "right")["attention_mask"]
    for valid in (None, right) if name == "llama" else ():
        cache, parts = transformers.DynamicCache(config=made.config), []
        for start, end in ((0, 4), (4, 9), (9, 11)):
            mask = None if valid is None else valid[:, :end]
            new = made(ids[:, start:end], attention_mask=mask, past_key_values=cache)
            parts.append(new.logits)
        keep = slice(None) if valid is None else valid.bool()
        whole = made(ids, attention_mask=valid).logits
        torch.testing.assert_close(torch.cat(parts, 1)[keep], whole[keep])


@pytest.mark.parametrize("name", ["mistral", "bart", "t5", "vit"])
@pytest.mark.parametrize("implementation", NAMES)
def test_every_mechanism_runs_or_says_why_not(name, implementation):
    made, given = model(name, implementation), inputs(name, "right")
    mixer = implementation.removeprefix("regard_")
    refused = {"t5": "position_bias"} if mixer != "softmax" else {}
    able = regard.MIXERS[mixer].capabilities
    if mixer in ONE_AXIS or not able.cross:
        refused["bart"] = "does not support cross"
    if not able.pairwise:
        refused["mistral"] = "does not support pairwise"
    if name in refused:
        with pytest.raises(UnsupportedError, match=refused[name]):
            made(**given)
        return
    logits = valid_logits(name, made, given)
    assert logits.isfinite().all()
    if mixer in ("linear", "performer", "efficient", "global"):
        assert (logits.sum() - valid_logits(name, model(name), given).sum()).abs() > 1e-9


def test_attention_maps():
    given, found = inputs("bert", "right"), []
    keep = given["attention_mask"].bool()[1]
    for implementation in ("eager", "regard_softmax"):
        made = model("bert", implementation)
        found.append([w[1][:, keep] for w in made(**given, output_attentions=True).attentions])
    torch.testing.assert_close(found[1], found[0])


def test_what_would_be_ignored_is_refused():
    given, dropped = inputs("bert"), {"attention_probs_dropout_prob": 0.1}
    made = model("bert", "regard_linear", **dropped)
    made(**given)
    assert model("bert", "regard_softmax", **dropped).train()(**given).logits.isfinite().all()
    mask = token_mask(2, 5, 5, attention_mask=torch.arange(5) < torch.tensor([[5], [4]]))
    moved = mask.to("cpu").clone()
    assert isinstance(moved, TokenMask) and mask.shape == (2, 1, 5, 5)
    assert moved.mask.causal and torch.equal(moved.mask.valid, mask.mask.valid)
    q, bias = torch.randn(1, 2, 5, 8), torch.full((2, 1, 11, 11), 0.5, dtype=torch.float64)

    def attend(**more):
        attention = AttentionFunction(AttentionConfig("softmax"))
        return attention(torch.nn.Identity(), q, q, q, None, is_causal=True, **more)

    assert_refused(
        (UnsupportedError, "linear does not support dropout of weights: set", lambda: made.train()(**given)),
        (UnsupportedError, "it is not made of queries, keys and values", lambda: AttentionConfig("fnet")),
        (UnsupportedError, "it learns project.key, project.value, and an attention function stores", lambda: model("bert", "regard_linformer")),
        (UnsupportedError, "reformer does not support given queries, keys and values: its keys", lambda: model("bert", "regard_reformer")),
        (UnknownNameError, "unknown attn_implementation 'regard_liner'. Did you mean 'regard_linear'", lambda: model("bert", "regard_liner")),
        (UnsupportedError, "it learns centroids", lambda: AttentionConfig("routing")),
        (OptionError, "head_dim cannot be among", lambda: AttentionConfig("softmax", {"head_dim": 16})),
        (OptionError, "num_kv_heads cannot be among", lambda: AttentionConfig("softmax", {"num_kv_heads": 1})),
        *((UnsupportedError, f"{name} does not support cross .*depends on those before it",
           lambda name=name, how=how: AttentionConfig("softmax", cross=AttentionConfig(name, how))) for name, how in PLACED.items()),
        (UnsupportedError, "luong_local does not support cross", lambda: model("bart", "regard_placed")(**inputs("bart"))),
        (UnsupportedError, "sinkhorn does not support a cache", lambda: greedy(model("llama", "regard_sorting"), **inputs("llama"))),
        (UnsupportedError, "this model changes masks itself", lambda: mask[:, :, :, :3]),
        (UnsupportedError, "softmax does not support head_mask: ", lambda: attend(head_mask=torch.ones(2))),
        (UnsupportedError, "softmax does not support cache: ", lambda: attend(cache=torch.ones(2))),
        (UnsupportedError, "masks that are added to scores",
         lambda: model("bert", "regard_softmax")(given["input_ids"], attention_mask=bias)),
    )  # fmt: skip


def test_a_models_own_mask():
    allowed = torch.rand(2, 1, 11, 11, generator=torch.Generator().manual_seed(0)) > 0.3
    allowed |= torch.eye(11, dtype=torch.bool)
    ids = inputs("bert")["input_ids"]
    float_mask = torch.zeros(allowed.shape, dtype=torch.float64)
    float_mask[~allowed] = torch.finfo(torch.float64).min
    want = model("bert")(ids, attention_mask=float_mask).logits
    for mask in (allowed, float_mask):
        got = model("bert", "regard_softmax")(ids, attention_mask=mask).logits
        torch.testing.assert_close(got, want)


@pytest.mark.parametrize("name, how", [*PLACED.items(), ("bigbird", {"block_size": 2})])
def test_a_padded_row_is_as_alone_and_a_prefix_as_in_the_whole(name, how):
    """Where a mechanism has places of its own; a model's windows leave padding and the causal order what they are."""
    regard.hf.register(f"own_{name}", AttentionConfig(name, how))
    made, given = model("bert", f"regard_own_{name}"), inputs("bert", "left")
    position = (given["attention_mask"].cumsum(1) - 1).clamp_min(0)
    alone = made(given["input_ids"][1:, 4:]).logits[0]
    torch.testing.assert_close(made(**given, position_ids=position).logits[1, 4:], alone)
    if name != "nystrom":  # which has no causal form
        made, ids = model("mistral", f"regard_own_{name}"), given["input_ids"]
        whole, prefix = (made(z, use_cache=False).logits for z in (ids, ids[:, :7]))
        torch.testing.assert_close(prefix, whole[:, :7])
        padded = made(ids, attention_mask=inputs("mistral", "right")["attention_mask"])
        torch.testing.assert_close(padded.logits[1, :7], prefix[1])
    if name == "luong_local":
        first = made(ids[:, :7], use_cache=True)
        rest = made(ids[:, 7:], past_key_values=first.past_key_values).logits
        torch.testing.assert_close(rest, whole[:, 7:])


@pytest.mark.parametrize("implementation", ["regard_performer", "regard_window"])
def test_trainer(implementation, tmp_path):
    made = model("gpt2", implementation).float().train()
    rows = [{"input_ids": row, "labels": row} for row in inputs("gpt2")["input_ids"].repeat(8, 1)]
    with torch.inference_mode():
        made(rows[0]["input_ids"][None])  # what is made for it serves training, too
    made.gradient_checkpointing_enable()
    steps = {"max_steps": 30, "learning_rate": 2e-2, "save_strategy": "no"}
    _, losses = small.trained(made, rows, tmp_path, **steps)
    assert losses[-1] < losses[0] / 2


@pytest.mark.parametrize("kind, head", [("Falcon", "ForCausalLM"), ("OpenAIGPT", "LMHeadModel"), ("XLNet", "Model")])  # fmt: skip
def test_models_that_call_no_function_are_refused(kind, head):
    config = getattr(transformers, f"{kind}Config")()
    made, why = getattr(transformers, f"{kind}{head}"), "calls no function for attention"
    with torch.device("meta"):
        for call in (partial(made._from_config, config, attn_implementation="regard_softmax"),
                     partial(made(config).set_attn_implementation, "regard_softmax")):  # fmt: skip
            assert_refused((UnsupportedError, why, call))


SCORED = {
    "GptOss": {"num_local_experts": 2, "num_experts_per_tok": 1, "rope_parameters": {"rope_type": "default", "rope_theta": 1e4}},
    "Gemma2": {"attn_logit_softcapping": 0.5},
    "Gemma3": {},
}  # fmt: skip


@pytest.mark.parametrize("kind", SCORED)
def test_sinks_caps_and_windows_are_the_models_own(kind):
    """Two of three layers have a window; left padding, a cache, and documents in a row."""
    made = small.built(f"{kind}ForCausalLM", small.GEMMA, **SCORED[kind]).float()
    with torch.no_grad():
        for name, parameter in made.named_parameters():
            if "sinks" in name:
                parameter.normal_()
            elif "q_proj" in name or "k_proj" in name:
                parameter.mul_(20)
    given = inputs("llama", "left")
    ids, valid, found = given["input_ids"], given["attention_mask"], []
    for implementation in ("eager", "regard_softmax"):
        made.set_attn_implementation(implementation)
        apart = torch.cat([made(part).logits for part in ids[:1].split([6, 5], 1)], 1)
        found.append((made(**given).logits[valid.bool()], greedy(made, **given), apart))
    torch.testing.assert_close(found[1], found[0], rtol=1e-4, atol=1e-5)
    packed = torch.tensor([[0, 1, 2, 3, 4, 5, 0, 1, 2, 3, 4]])
    got = made(ids[:1], position_ids=packed, use_cache=False).logits
    torch.testing.assert_close(got, apart, rtol=1e-4, atol=1e-5)
    if kind != "Gemma3":
        made.set_attn_implementation("regard_local")
        with pytest.raises(UnsupportedError, match=r"local does not support (s_aux|softcap)"):
            made(**given)
        return
    made.set_attn_implementation("regard_linear")
    with pytest.raises(UnsupportedError, match="linear does not support pairwise"):
        made(**given)
    mixed = AttentionConfig("linear", windowed=AttentionConfig("softmax"))
    made.set_attn_implementation(*regard.hf.register("beside_windows", mixed))
    got = made(**given).logits[valid.bool()]
    assert got.isfinite().all() and not torch.allclose(got, found[0][0], atol=1e-3)
    assert torch.equal(greedy(made, **given), greedy(made, use_cache=False, **given))
