"""Stacks with recurrent layers, without experts: Qwen3-Next, Kimi Linear and Mamba-2."""

import math
import re
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import Mixer
from regard.hf.kinds.decoders import GainLessOne, causal_stack, layered, rotary, rotary_base
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, Weights, linear
from regard.mixers.build import build
from regard.models.blocks import Block

LIMITS = ((0.0, math.inf), [0.0, math.inf], [0.0, {"__float__": "Infinity"}])
"""Steps of Mamba-2 without a bound, as a config and its JSON hold them."""

SHARE = "partial_rotary_factor"
"""Field that says how much of a head is turned."""

GATED_DELTA = """
decay.A_log=A_log decay.bias=dt_bias norm.weight=norm.weight out.weight=out_proj.weight
"""
KIMI_DELTA = """
query.weight=q_proj.weight key.weight=k_proj.weight value.weight=v_proj.weight write.weight=b_proj.weight
decay.bias=forget_gate.dt_bias norm.weight=o_norm.weight out.weight=o_proj.weight
"""
LATENT = """
compress.weight=kv_a_proj_with_mqa.weight norm.weight=kv_a_layernorm.weight expand.weight=kv_b_proj.weight out.weight=o_proj.weight
"""
MAMBA2 = (
    "decay.A_log=A_log decay.bias=dt_bias skip=D norm.weight=norm.weight out.weight=out_proj.weight"
)


def qwen3_next(request: LoadRequest) -> Stack:
    """Gated DeltaNet, and gated softmax attention whose rotation turns some of the channels; gains are stored less one."""
    request.require(num_experts=0, attention_bias=False)
    mixers = {"linear_attention": _gated_delta, "full_attention": _softmax}
    return _hybrid(request, mixers, GainLessOne)


def kimi_linear(request: LoadRequest) -> Stack:
    """Kimi Delta Attention, and latent attention without positions."""
    _as_in_a_model(request.weights)
    dense = ["dense"] * len(request.config["layer_types"])
    request.require(attention_bias=False, mlp_layer_types=dense)
    return _hybrid(request, {"linear_attention": _kimi_delta, "full_attention": _latent})


def _as_in_a_model(weights: Weights) -> None:
    """Names of files become those of the state dict, as in Transformers' from_pretrained."""
    gate = r"(?<=self_attn\.)(?=f_[ab]_proj|dt_bias|A_log)"
    tensors = {
        re.sub(gate, "forget_gate.", name).replace("block_sparse_moe", "mlp"): z
        for name, z in weights.tensors.items()
    }
    weights.tensors, weights.left = tensors, set(tensors)
    for name in [name for name in tensors if name.endswith("q_conv1d.weight")]:
        parts = [weights[name.replace("q_conv", f"{part}_conv")] for part in "qkv"]
        joint = name.replace("q_conv", "conv")
        tensors[joint] = torch.cat(parts)
        weights.left.add(joint)


def mamba2(request: LoadRequest) -> Stack:
    """Mamba-2, whose blocks have no feed-forward layer; heads share their queries and keys."""
    w, c, _ = request
    request.require(
        n_groups=1, use_bias=False, use_conv_bias=True, hidden_act="silu", conv_kernel=4
    )
    request.one_of("time_step_limit", *LIMITS)
    at = w.prefix("backbone.")
    request.agree(at, {"embeddings.weight": "vocab_size hidden_size"})
    norm = w.norms(nn.RMSNorm, c["layer_norm_epsilon"])
    embedding = TokenEmbedding(w.embedding(f"{at}embeddings"))
    blocks = []
    for i in range(request.depth("num_hidden_layers")):
        block = Block(1, _mamba2(request, f"{at}layers.{i}.mixer."), None)
        block.mixer_norm = norm(f"{at}layers.{i}.norm")
        blocks.append(block)
    return causal_stack(request, embedding, blocks, norm(f"{at}norm_f"))


def _hybrid(
    request: LoadRequest,
    mixers: Mapping[str, Callable[..., Mixer]],
    kind_of_norm: type = nn.RMSNorm,
) -> Stack:
    w, c, _ = request
    request.require(hidden_act="silu")  # of the convolutions, too
    return layered(request, c["layer_types"], mixers, w.norms(kind_of_norm, c["rms_norm_eps"]))


def _holding(mixer: Any, eps: float, tensors: Mapping[str, Tensor]) -> Mixer:
    """The mixer with these tensors; eps: of its norm."""
    mixer.to(tensors["out.weight"].dtype).load_state_dict(mixer.state_dict() | tensors)
    mixer.norm.eps = eps
    return mixer


def _named(request: LoadRequest, at: str, names: str) -> dict[str, Tensor]:
    """Our names -> tensors, of "ours=theirs" pairs."""
    pairs = (pair.split("=") for pair in names.split())
    return {ours: request.weights[at + theirs] for ours, theirs in pairs}


def _gated_delta(request: LoadRequest, layer: str) -> Mixer:
    w, c, _ = request
    at = f"{layer}.linear_attn."
    keys, values = "linear_num_key_heads*linear_key_head_dim", "linear_num_value_heads*linear_value_head_dim"  # fmt: skip
    request.agree(at, {
        "A_log": "linear_num_value_heads",
        "norm.weight": "linear_value_head_dim",
        "in_proj_qkvz.weight": f"2*{keys}+2*{values}",
        "conv1d.weight": f"2*{keys}+{values} ? linear_conv_kernel_dim",
    })  # fmt: skip
    G = c["linear_num_key_heads"]
    H = c["linear_num_value_heads"]
    K = c["linear_key_head_dim"]
    V = c["linear_value_head_dim"]
    joint = w[f"{at}in_proj_qkvz.weight"].unflatten(0, (G, -1))  # of each head of keys together
    both = w[f"{at}in_proj_ba.weight"].unflatten(0, (G, -1))
    wide = H // G * V
    parts = "query key value gate write decay.project".split()
    rows = (z.flatten(0, 1) for z in (*joint.split([K, K, wide, wide], 1), *both.chunk(2, 1)))
    tensors = {f"{part}.weight": z for part, z in zip(parts, rows, strict=True)}
    tensors |= _named(request, at, GATED_DELTA)
    tensors["conv.weight"] = w[f"{at}conv1d.weight"][:, 0]
    mixer = build(
        "gated_delta", dim=c["hidden_size"], num_heads=H, num_key_heads=G, key_dim=K, value_dim=V,
        conv_size=c["linear_conv_kernel_dim"],
    )  # fmt: skip
    return _holding(mixer, c["rms_norm_eps"], tensors)


def _softmax(request: LoadRequest, layer: str) -> Mixer:
    w, c, _ = request
    at = f"{layer}.self_attn."
    request.agree(
        at, {"q_proj.weight": "2*num_attention_heads*head_dim", "q_norm.weight": "head_dim"}
    )
    rope = c.get("rope_parameters") or {}
    K = c["head_dim"]
    share = rope.get(SHARE, c.get(SHARE, 0.25))
    base = rotary_base(request, {n: z for n, z in rope.items() if n != SHARE}, "rope_theta")
    joint = w[f"{at}q_proj.weight"].unflatten(0, (-1, 2, K))  # a head's queries, then its gate
    w.tensors[f"{at}q_proj.weight"], gate = (joint[:, i].flatten(0, 1) for i in (0, 1))
    norm = w.norms(GainLessOne, c["rms_norm_eps"])
    mixer = rotary(request, layer, base=base, norm=norm, channels=int(K * share), gate=True)
    mixer.heads.gate = linear(gate)
    return mixer


def _kimi_delta(request: LoadRequest, layer: str) -> Mixer:
    w, c, _ = request
    at = f"{layer}.self_attn."
    request.agree(at, {
        "b_proj.weight": "linear_num_heads",
        "o_norm.weight": "linear_head_dim",
        "conv1d.weight": "3*linear_num_heads*linear_head_dim ? linear_conv_kernel_dim",
    })  # fmt: skip
    H = c["linear_num_heads"]
    K = c["linear_head_dim"]
    size = c["linear_conv_kernel_dim"]
    mixer: Any = build(
        "kimi_delta", dim=c["hidden_size"], num_heads=H, key_dim=K, value_dim=K, conv_size=size
    )
    mixer.gate = nn.Sequential(*w.linears(f"{at}g_{{}}_proj", "ab"))
    mixer.decay.project = nn.Sequential(*w.linears(f"{at}forget_gate.f_{{}}_proj", "ab"))
    tensors = _named(request, at, KIMI_DELTA)
    tensors["decay.A_log"] = w[f"{at}forget_gate.A_log"].flatten()
    tensors["conv.weight"] = w[f"{at}conv1d.weight"][:, 0]
    return _holding(mixer, c["rms_norm_eps"], tensors)


def _latent(request: LoadRequest, layer: str) -> Mixer:
    c = request.config
    at = f"{layer}.self_attn."
    rank = c.get("q_lora_rank")
    query = "num_attention_heads*qk_nope_head_dim+num_attention_heads*qk_rope_head_dim"
    request.agree(at, {
        "q_proj.weight": query,
        "q_b_proj.weight": f"{query} q_lora_rank",
        "kv_a_proj_with_mqa.weight": "kv_lora_rank+qk_rope_head_dim",
        "kv_b_proj.weight": "num_attention_heads*qk_nope_head_dim+num_attention_heads*v_head_dim kv_lora_rank",
    })  # fmt: skip
    request.require(num_key_value_heads=c["num_attention_heads"])
    mixer: Any = build(
        "latent",
        dim=c["hidden_size"],
        num_heads=c["num_attention_heads"],
        query_rank=rank,
        base=None,
        latent_dim=c["kv_lora_rank"],
        nope_dim=c["qk_nope_head_dim"],
        rotary_dim=c["qk_rope_head_dim"],
        value_dim=c["v_head_dim"],
    )
    names = "query.weight=q_proj.weight"
    if rank is not None:
        names = "query.0.weight=q_a_proj.weight query.1.weight=q_a_layernorm.weight query.2.weight=q_b_proj.weight"
        mixer.latent.query[1].eps = 1e-6
    _holding(mixer.latent, 1e-6, _named(request, at, LATENT + names))
    return mixer


def _mamba2(request: LoadRequest, at: str) -> Mixer:
    w, c, _ = request
    request.agree(at, {
        "in_proj.weight": "2*num_heads*head_dim+2*state_size+num_heads hidden_size",
        "out_proj.weight": "hidden_size expand*hidden_size",
        "D": "num_heads",
    })  # fmt: skip
    H = c["num_heads"]
    N = c["state_size"]
    V = c["head_dim"]
    inside = w[f"{at}in_proj.weight"].split([H * V, H * V, N, N, H])
    parts = "gate value key query decay.project".split()
    tensors = {f"{part}.weight": z for part, z in zip(parts, inside, strict=True)}
    for part in ("weight", "bias"):
        # values, keys and queries, which go the other way round here
        joint = w[f"{at}conv1d.{part}"].squeeze().split([H * V, N, N])
        tensors[f"conv.{part}"] = torch.cat(joint[::-1])
    tensors |= _named(request, at, MAMBA2)
    mixer = build(
        "scalar_decay", dim=c["hidden_size"], num_heads=H, form="mamba2", key_dim=N, value_dim=V
    )
    return _holding(mixer, c["layer_norm_epsilon"], tensors)
