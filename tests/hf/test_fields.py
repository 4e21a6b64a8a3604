"""Every field of a config and every tensor of a checkpoint is read, refused by name, or named in `left`.

The oracle is Transformers: a field is changed in the config of both, weights held; a tensor is changed for both. All
weights are random and nothing is tied that may be untied, so that whatever is dropped shows.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import pytest
import torch
from huggingface_hub.errors import StrictDataclassError

from tests.hf.small import BERT, CHECKPOINTS, GEMMA, GPT2, LLAMA, T5, built, tokens, widened
from tests.hf.test_load import OUR_GLOBALS, RECURRENT

import regard.hf  # isort: skip
from regard import OptionError, StoredDataError, UnsupportedError
from regard.hf.fields import WITHOUT_EFFECT
from regard.hf.stack import EncoderDecoder

FAR = {**T5, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 6}
AS_THEY_ARE = "bert", "roberta", "big_bird", "qwen3_next", "kimi_linear_rank", "mamba2"
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    **{name: CHECKPOINTS[name] for name in AS_THEY_ARE},
    "longformer": ("LongformerForMaskedLM", {**BERT, "attention_window": [4, 6]}),
    "fnet": ("FNetForMaskedLM", CHECKPOINTS["fnet"][1]),
    "gpt2": ("GPT2LMHeadModel", {**GPT2, "n_inner": 40}),
    "llama": ("LlamaForCausalLM", {**LLAMA, "attention_bias": True, "mlp_bias": True}),
    "mistral": ("MistralForCausalLM", {**LLAMA, "sliding_window": None}),
    "qwen2": ("Qwen2ForCausalLM", {**LLAMA, "head_dim": 6}),
    "qwen3": ("Qwen3ForCausalLM", {**LLAMA, "attention_bias": True}),
    "gemma3_text": ("Gemma3ForCausalLM", {**GEMMA, "attention_bias": True}),
    "t5": ("T5ForConditionalGeneration", {**FAR, "num_decoder_layers": 1}),
    "t5 gated": ("T5ForConditionalGeneration", {**FAR, "feed_forward_proj": "gated-gelu"}),
    "t5 encoder": ("T5EncoderModel", FAR),
}
UNTIED = ("bert", "longformer", "gpt2", "llama", "t5")  # each has a head of its own kind
CASES = [(kind, True) for kind in KINDS] + [(kind, False) for kind in UNTIED]
OTHERS: dict[str, list[Any]] = {
    "hidden_act": ["relu", "silu", "gelu_pytorch_tanh", "tanh"],
    "activation_function": ["relu", "tanh"],
    "ff_activation": ["relu", "tanh"],
    "dense_act_fn": ["silu", "tanh"],
    "feed_forward_proj": ["silu", "gated-silu"],
    "attention_type": ["other"],  # blocks: test_bigbirds_blocks_given_the_same_random_ones
    "attention_window": [4, [4, 4], [5, 6], [6]],
    "chunk_size_feed_forward": [1],  # Transformers insists that it divides the length
    "chunk_size_lm_head": [1],
    "dtype": ["float16"],
    "layer_types": [["sliding_attention", "full_attention"]],
    "max_window_layers": [0],
    "mlp_layer_types": [["sparse"] * 5],
    "mlp_only_layers": [[0]],
    "model_type": ["bort"],
    "n_inner": [48],
    "output_router_logits": [False],  # without experts, True breaks Transformers
    "norm_topk_prob": [False],
    "pad_token_id": [1, 2],
    "per_layer_config": [{0: {"num_attention_heads": 2}}],
    "position_embedding_type": ["relative_key"],
    "problem_type": ["regression"],
    "rescale_prenorm_residual": [],  # where it is True, from_pretrained rescales what it has read
    "rope_parameters": [
        {"rope_type": "default", "rope_theta": 50.0},
        {"rope_type": "linear", "rope_theta": 500.0, "factor": 2.0},
        {"rope_type": "default", "rope_theta": 500.0, "partial_rotary_factor": 0.5},
    ],
    "rope_scaling": [{"rope_type": "linear", "factor": 2.0}],
    "rope_theta": [50.0],
    "return_dict": [],  # of a config, it breaks Transformers
    "sliding_window": [4, 0],
    "summary_activation": ["relu"],
    "summary_type": ["first"],
    "time_step_limit": [[0.0, 1.0]],
}
"""Other values of fields; those of numbers and booleans are made."""
OF_TYPES: dict[type, Callable[[Any], list[Any]]] = {
    bool: lambda value: [not value],
    int: lambda value: [value + 1, (value or 1) * 2],
    type(None): lambda _: [1, 2],
    float: lambda value: [value + 0.4],
    str: lambda value: [value + "x"],
    dict: lambda _: [{}],
}
GONE = "gone"  # a field that the file leaves out
OF_ALL = ("dtype", "model_type", "per_layer_config", "rope_scaling")
TYPES, TARGET = (torch.arange(11) > 4).long().expand(2, -1), tokens()[0][:, :7].flip(1)
TYPED = {"token_type_ids": TYPES}, {"types": TYPES}
BESIDE: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    **dict.fromkeys(KINDS, ({}, {})),
    **dict.fromkeys(("bert", "big_bird", "fnet"), TYPED),
    "longformer": (TYPED[0] | {"global_attention_mask": OUR_GLOBALS.long()}, TYPED[1] | {"global_tokens": OUR_GLOBALS}),
    **dict.fromkeys(("t5", "t5 gated"), ({"decoder_input_ids": TARGET}, {"target": TARGET})),
}  # fmt: skip
"""What Transformers, and what we are told beside the tokens."""


def made(kind: str, monkeypatch, **changes: Any):
    original = built(*KINDS[kind], **changes)
    with torch.no_grad():
        for parameter in original.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.2)
    if kind in RECURRENT:
        widened(original, monkeypatch)
    return original


@torch.no_grad()
def theirs_of(model, kind: str) -> torch.Tensor:
    return model(tokens()[0], **BESIDE[kind][0], return_dict=True)[0]


@torch.no_grad()
def ours_of(model, kind: str) -> torch.Tensor:
    hidden = model(tokens()[0], **BESIDE[kind][1])
    if isinstance(model, EncoderDecoder):
        return model.logits(hidden)
    return hidden if model.head is None else model.head(hidden)


def alike(found: torch.Tensor, want: torch.Tensor) -> bool:
    if found.shape != want.shape:
        return False
    return bool((found - want).abs().max() <= 1e-5 * want.abs().max().clamp(min=1))


def outcome(original, kind: str, state, config) -> torch.Tensor | Exception:
    """What Transformers gives for this state and config, tied as from_pretrained ties, or why nothing."""
    cls, how = type(original), {"dtype": torch.float64, "output_loading_info": True}
    try:
        given = cls.config_class.from_dict(config)
        model, info = cls.from_pretrained(None, config=given, state_dict=state, **how)
        assert not info["missing_keys"], info["missing_keys"]
        return theirs_of(model.eval(), kind)
    except (RuntimeError, ValueError, TypeError, AssertionError, KeyError, StrictDataclassError) as error:  # fmt: skip
        return error


@pytest.mark.parametrize("kind", KINDS)
def test_every_field_is_read_refused_or_named(kind, monkeypatch):
    original = made(kind, monkeypatch)
    state, config = original.state_dict(), original.config.to_dict()
    if kind == "t5 gated":  # Transformers derives these, and older files lack them
        del config["dense_act_fn"], config["is_gated_act"], config["scale_decoder_outputs"]
    if kind == "mistral":  # as older files say it
        config["rope_theta"] = config.pop("rope_parameters")["rope_theta"]
    if kind in ("qwen2", "qwen3"):
        config["sliding_window"] = 4  # without use_sliding_window, as its published files
    base = theirs_of(original, kind)
    ours = regard.hf.load(state, config)
    assert alike(ours_of(ours, kind), base)
    assert not [name for name in ours.left if name.startswith("config.")]
    names = {*config, *OF_ALL, *(field.name for field in dataclasses.fields(original.config))}
    faults = []
    for name in sorted(names):
        told = False
        plain = config.get(name)
        for value in (*(OTHERS[name] if name in OTHERS else OF_TYPES[type(plain)](plain)), GONE):
            changed, case = {**config, name: value}, f"{kind} with {name}={value!r}"
            if value is GONE:
                changed.pop(name)
            try:
                ours = regard.hf.load(state, changed)
            except (UnsupportedError, StoredDataError, OptionError) as error:
                told = True
                names = (name, "the checkpoint has no tensor", f"by num_heads ({value})")
                if not any(word in str(error) for word in names):
                    faults.append(f"{case} is refused without its name: {error}")
                continue
            if f"config.{name}" in ours.left:
                told = True
                continue
            want = outcome(original, kind, state, changed)
            if value is GONE and isinstance(want, Exception):  # tensors tell ours their sizes
                continue
            if isinstance(want, Exception) or not alike(ours_of(ours, kind), want):
                faults.append(f"{case}: {want if isinstance(want, Exception) else 'differs'}")
                continue
            told |= not alike(want, base)
        if not told and name not in WITHOUT_EFFECT:
            faults.append(f"{kind}: {name} has no effect, and the list does not say so")
    assert not faults, "\n".join(faults)
    if kind == "mistral":  # which has no such switch
        with pytest.raises(UnsupportedError, match="sliding_window=4"):
            regard.hf.load(state, config | {"sliding_window": 4, "use_sliding_window": False})


@pytest.mark.parametrize("kind, tied", CASES)
def test_every_tensor_is_read_or_named(kind, tied, monkeypatch):
    original = made(kind, monkeypatch, tie_word_embeddings=tied)
    state, config = original.state_dict(), original.config.to_dict()
    base = theirs_of(original, kind)
    ours = regard.hf.load(state, config)
    assert alike(ours_of(ours, kind), base)
    left, faults = set(ours.left), []
    places = [tensor.data_ptr() for tensor in state.values()]
    for name, tensor in state.items():
        changed = {**state, name: tensor + 0.3 * torch.randn_like(tensor)}
        if places.count(tensor.data_ptr()) > 1 or name not in dict(original.named_parameters()):
            want = outcome(original, kind, changed, config)
        else:  # the model itself with this tensor is faster than a new one
            before = tensor.clone()
            tensor.copy_(changed[name])
            want = theirs_of(original, kind)
            tensor.copy_(before)
        ours = regard.hf.load(changed, config)
        if isinstance(want, Exception):
            faults.append(f"{name}: {want}")
        elif not alike(ours_of(ours, kind), want) and name not in ours.left:
            faults.append(f"{name} is read as something else")
        elif name in left and not alike(want, base):
            faults.append(f"{name} is left and has an effect")
        if name.endswith(".bias") and ".1." in name and name not in left:  # half a layer
            with pytest.raises(StoredDataError, match=f"no tensor '{name}'"):
                regard.hf.load({n: z for n, z in state.items() if n != name}, config)
    assert not faults, "\n".join(faults)
