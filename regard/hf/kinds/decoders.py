"""GPT-2, Llama and its kin, Gemma 3."""

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch.nn.functional as F
from torch import nn

from regard.core import Mixer, Options, UnsupportedError, Vectors, shown
from regard.functional.rows import wide_type
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, Norms, linear, make_mixer
from regard.models.blocks import Block

STORED_TRANSPOSED = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def gpt2(request: LoadRequest) -> Stack:
    """Pre-norm, learned positions, one matrix for queries, keys and values, stored transposed."""
    w, c, _ = request
    request.require(
        scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False
    )
    at, dim = w.prefix("transformer."), c["n_embd"]
    norm = w.norms(nn.LayerNorm, c["layer_norm_epsilon"])
    request.agree(at, {
        "wte.weight": "vocab_size n_embd", "wpe.weight": "n_positions", "h.0.mlp.c_fc.weight": "n_embd n_inner",
    })  # fmt: skip
    embedding = TokenEmbedding(w.embedding(f"{at}wte"), place=w.embedding(f"{at}wpe"))
    w.tensors |= {n: z.T for n, z in w.tensors.items() if n.endswith(STORED_TRANSPOSED)}
    blocks = []
    for i in range(request.depth("n_layer")):
        layer = f"{at}h.{i}"
        weights, biases = (w[f"{layer}.attn.c_attn.{part}"] for part in ("weight", "bias"))
        joint = map(linear, weights.split(dim), biases.split(dim))
        projections = (*joint, w.linear(f"{layer}.attn.c_proj"))
        mixer = make_mixer("softmax", dim, c["n_head"], projections)
        names = "ln_1", "ln_2", "mlp.c_fc", "mlp.c_proj"
        blocks.append(request.block(mixer, norm, layer, names, activation="activation_function"))
    return causal_stack(request, embedding, blocks, norm(f"{at}ln_f"))


NEAR, FULL = "sliding_attention", "full_attention"
SHAPES = {
    "embed_tokens.weight": "vocab_size hidden_size",
    "layers.0.mlp.up_proj.weight": "intermediate_size",
}
HEADS = {
    "q_proj.weight": "num_attention_heads*head_dim",
    "k_proj.weight": "num_key_value_heads*head_dim",
}
NAMES = (
    "input_layernorm",
    "post_attention_layernorm",
    "mlp.up_proj",
    "mlp.down_proj",
    "mlp.gate_proj",
)


def llama(request: LoadRequest) -> Stack:
    """Llama and its kin: RMSNorm, rotary positions, grouped-query heads, gated feed-forward; Qwen3 normalises queries and keys."""
    w, c, _ = request
    of_mistral = c["model_type"] == "mistral"
    window = c.get("sliding_window", 4096 if of_mistral else None)
    limited = of_mistral or c.get("use_sliding_window", True)
    if limited and window is not None:
        raise UnsupportedError(
            f"load does not support sliding_window={shown(window)} where use_sliding_window is not False"
        )
    at = w.prefix("model.")
    if c["model_type"] in ("llama", "qwen3"):
        _tell_bias(request, at)
    if c["model_type"] == "llama":
        request.tell("mlp_bias", f"{at}layers.0.mlp.up_proj.bias" in w, default=False)
    norm = w.norms(nn.RMSNorm, c["rms_norm_eps"])
    base = rotary_base(request, c.get("rope_parameters") or {}, "rope_theta")
    mixer = partial(rotary, base=base, norm=norm if c["model_type"] == "qwen3" else None)
    kinds = c.get("layer_types") or [FULL] * request.depth("num_hidden_layers")
    return layered(request, kinds, {FULL: mixer}, norm)


def gemma3(request: LoadRequest) -> Stack:
    """Gemma 3, the text model: windows before layers that see all, each with its own base of angles; norms before and after a layer."""
    w, c, _ = request
    at = w.prefix("model.")
    request.require(
        attn_logit_softcapping=None, final_logit_softcapping=None, use_bidirectional_attention=False
    )
    _tell_bias(request, at)
    every = c.get("sliding_window_pattern", c.get("_sliding_window_pattern", 6))
    depth = request.depth("num_hidden_layers")
    usual = [NEAR if (i + 1) % every else FULL for i in range(depth)]
    types = c.get("layer_types") or usual
    rope = c.get("rope_parameters") or {}
    if set(rope) - {NEAR, FULL} or c["sliding_window"] < 2:
        raise UnsupportedError(
            f"load does not support rope_parameters={shown(rope)} beside sliding_window={shown(c['sliding_window'])}"
        )
    norm = w.norms(GainLessOne, c["rms_norm_eps"])
    older = {NEAR: ("rope_local_base_freq", 1e4), FULL: ("rope_theta", 1e6)}
    mixers = {}
    for kind in filter(types.__contains__, older):
        base = rotary_base(request, rope.get(kind) or {}, *older[kind])
        # a config counts the query, too
        near = {"kind": "local", "window_size": c["sliding_window"] - 1} if kind == NEAR else {}
        mixers[kind] = partial(rotary, base=base, norm=norm, **near)
    stack = layered(
        request,
        types,
        mixers,
        norm,
        names=(NAMES[0], "pre_feedforward_layernorm", *NAMES[2:]),
        activation="hidden_activation",
        scale=c["hidden_size"] ** 0.5,
    )
    # The layers' tensors fit head_dim.
    request.tell("query_pre_attn_scalar", c["head_dim"], default=256)
    blocks: Any = stack.blocks
    for i, block in enumerate(blocks):
        block.mixer_after = norm(f"{at}layers.{i}.post_attention_layernorm")
        after = norm(f"{at}layers.{i}.post_feedforward_layernorm")
        block.feed_forward = nn.Sequential(block.feed_forward, after)
    return stack


def _tell_bias(request: LoadRequest, at: str) -> None:
    biased = f"{at}layers.0.self_attn.q_proj.bias" in request.weights
    request.tell("attention_bias", biased, default=False)


def rotary_base(request: LoadRequest, rope: Options, field: str, default: float = 1e4) -> float:
    """The base of rotary positions, from `rope` or from this field of the config, as older files have it."""
    if rope.get("rope_type", "default") != "default" or set(rope) - {"rope_type", "rope_theta"}:
        raise UnsupportedError(
            f"load does not support scaled rotary positions: rope_parameters={shown(rope)}"
        )
    request.require(rope_scaling=None)
    return float(rope.get("rope_theta", request.config.get(field, default)))


def layered(
    request: LoadRequest,
    kinds: Sequence[str],
    mixers: Mapping[str, Callable[[LoadRequest, str], Mixer]],
    norm: Norms,
    *,
    names: Sequence[str] = NAMES,
    activation: str = "hidden_act",
    scale: float = 1.0,
) -> Stack:
    """A causal stack of layers of these kinds; mixers: kind -> a function that reads the mixer below a layer's name."""
    at = request.weights.prefix("model.")
    depth = request.depth("num_hidden_layers")
    request.agree(at, SHAPES)
    blocks = []
    if len(kinds) != depth or not set(kinds) <= set(mixers):
        raise UnsupportedError(
            f"load does not support layer_types={shown(kinds)} with num_hidden_layers={depth}: it reads {' and '.join(mixers)}, "
            "one for each layer"
        )
    embedding = TokenEmbedding(request.weights.embedding(f"{at}embed_tokens"), scale=scale)
    for i, kind in enumerate(kinds):
        layer = f"{at}layers.{i}"
        mixer = mixers[kind](request, layer)
        blocks.append(request.block(mixer, norm, layer, names, activation=activation))
    return causal_stack(request, embedding, blocks, norm(f"{at}norm"))


def rotary(
    request: LoadRequest,
    layer: str,
    *,
    base: float,
    norm: Norms | None,
    channels: int | None = None,
    kind: str = "softmax",
    **options: Any,
) -> Any:
    """A mixer of this kind. norm: that of queries and keys. channels: those of a head that turn; None: all."""
    w, c, pairing = request
    request.agree(f"{layer}.self_attn.", HEADS)
    mixer: Any = make_mixer(
        kind,
        c["hidden_size"],
        c["num_attention_heads"],
        w.linears(f"{layer}.self_attn.{{}}_proj", "qkvo"),
        num_kv_heads=c["num_key_value_heads"],
        position="rotary",
        position_options={"base": base, "pairing": pairing, "channels": channels},
        **options,
    )
    if norm is not None:
        mixer.heads.query_norm = norm(f"{layer}.self_attn.q_norm")
        mixer.heads.key_norm = norm(f"{layer}.self_attn.k_norm")
    return mixer


class GainLessOne(nn.RMSNorm):
    """Gemma's: the weight is the gain less one, and numbers are float32 at least."""

    def forward(self, x: Vectors) -> Vectors:
        wide = wide_type(x)
        gain = 1 + self.weight.to(wide)
        return F.rms_norm(x.to(wide), self.normalized_shape, gain, self.eps).type_as(x)


def causal_stack(
    request: LoadRequest, embedding: TokenEmbedding, blocks: list[Block], norm: nn.Module
) -> Stack:
    """Its lm_head is a matrix of its own, or the embedding, which a file then need not repeat."""
    c, head = request.config, None
    tied = c.get("tie_word_embeddings", c["model_type"] in ("gpt2", "gemma3_text"))
    if tied or "lm_head.weight" in request.weights:
        head = request.head("lm_head", embedding.word, tied=tied)
    return Stack(embedding, blocks, norm=norm, head=head, causal=True)
