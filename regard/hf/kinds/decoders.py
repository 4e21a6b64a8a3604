"""GPT-2, Llama and its kin."""

from torch import nn

from regard.core import UnsupportedError
from regard.core.errors import shown
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, linear, make_mixer


def gpt2(request: LoadRequest) -> Stack:
    """Pre-norm, learned positions, one matrix for queries, keys and values, stored transposed."""
    w, c = request.weights, request.config
    request.require("scale_attn_weights", True)
    request.require("scale_attn_by_inverse_layer_idx", False)
    request.require("add_cross_attention", False)
    at, dim = w.prefix("transformer."), c["n_embd"]
    norm = w.norms(nn.LayerNorm, c["layer_norm_epsilon"])
    shapes = {"wte.weight": "vocab_size n_embd", "wpe.weight": "n_positions", "h.0.mlp.c_fc.weight": "n_embd n_inner"}  # fmt: skip
    request.agree(at, shapes)
    embedding = TokenEmbedding(w.embedding(f"{at}wte"), place=w.embedding(f"{at}wpe"))
    blocks = []
    for i in range(request.depth("n_layer")):
        layer = f"{at}h.{i}"
        joint = w.linear(f"{layer}.attn.c_attn", transposed=True)
        parts = zip(joint.weight.detach().split(dim), joint.bias.detach().split(dim), strict=True)
        query, key, value = (linear(weight, bias) for weight, bias in parts)
        out = w.linear(f"{layer}.attn.c_proj", transposed=True)
        mixer = make_mixer("softmax", dim, c["n_head"], (query, key, value, out))
        names, activation = ("ln_1", "ln_2", "mlp.c_fc", "mlp.c_proj"), "activation_function"
        blocks.append(
            request.block(
                mixer, norm, layer, names, activation=activation, norm_first=True, transposed=True
            )
        )
    head = _head(request, embedding)
    return Stack(embedding, blocks, norm=norm(f"{at}ln_f"), head=head, causal=True)


SHAPES = {
    "embed_tokens.weight": "vocab_size hidden_size",
    "layers.0.self_attn.q_proj.weight": "num_attention_heads*head_dim",
    "layers.0.self_attn.k_proj.weight": "num_key_value_heads*head_dim",
    "layers.0.mlp.up_proj.weight": "intermediate_size",
}
NAMES = (
    "input_layernorm",
    "post_attention_layernorm",
    "mlp.up_proj",
    "mlp.down_proj",
    "mlp.gate_proj",
)


def llama(request: LoadRequest) -> Stack:
    """Llama and its kin: RMSNorm, rotary positions, grouped-query heads, gated feed-forward."""
    w, c = request.weights, request.config
    rope = c.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default" or set(rope) - {"rope_type", "rope_theta"}:
        raise UnsupportedError(
            f"load does not support scaled rotary positions: rope_parameters={shown(rope)}"
        )
    request.require("rope_scaling", None)
    window = c.get("sliding_window")
    if c.get("use_sliding_window", True) and window is not None:
        raise UnsupportedError(
            f"load does not support sliding_window={shown(window)} where use_sliding_window is not False"
        )
    full = ["full_attention"] * request.depth("num_hidden_layers")
    if list(c.get("layer_types") or full) != full:
        raise UnsupportedError(
            f"load does not support layer_types={shown(c['layer_types'])} with num_hidden_layers={len(full)}: it reads "
            "full_attention, once for each layer"
        )
    base = rope.get("rope_theta", c.get("rope_theta", 10000.0))
    at, norm = w.prefix("model."), w.norms(nn.RMSNorm, c["rms_norm_eps"])
    request.agree(at, SHAPES)
    if c["model_type"] == "llama":
        request.require("attention_bias", f"{at}layers.0.self_attn.q_proj.bias" in w)
        request.require("mlp_bias", f"{at}layers.0.mlp.up_proj.bias" in w)
    embedding = TokenEmbedding(w.embedding(f"{at}embed_tokens"))
    blocks = []
    for i in range(len(full)):
        layer = f"{at}layers.{i}"
        mixer = make_mixer(
            "softmax",
            c["hidden_size"],
            c["num_attention_heads"],
            w.linears(f"{layer}.self_attn.{{}}_proj", "qkvo"),
            num_kv_heads=c["num_key_value_heads"],
            position="rotary",
            position_options={"base": float(base), "pairing": request.pairing},
        )
        blocks.append(request.block(mixer, norm, layer, NAMES, norm_first=True))
    head = _head(request, embedding)
    return Stack(embedding, blocks, norm=norm(f"{at}norm"), head=head, causal=True)


def _head(request: LoadRequest, embedding: TokenEmbedding) -> nn.Linear | None:
    """lm_head: a matrix of its own, or the embedding, which a file then need not repeat."""
    w, c = request.weights, request.config
    tied = c.get("tie_word_embeddings", c["model_type"] == "gpt2")
    if not tied and "lm_head.weight" not in w:
        return None
    return request.head("lm_head", embedding.word, tied=tied)
