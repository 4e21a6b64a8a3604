"""GPT-2, Llama and its kin."""

from torch import nn

from regard.core import UnsupportedError
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, linear, make_block, make_feed_forward, make_mixer


def gpt2(request: LoadRequest) -> Stack:
    """Pre-norm, learned positions, one matrix for queries, keys and values, stored transposed."""
    w, c = request.weights, request.config
    request.require("scale_attn_weights", True)
    request.require("scale_attn_by_inverse_layer_idx", False)
    request.require("add_cross_attention", False)
    at, eps, dim = w.prefix("transformer."), c["layer_norm_epsilon"], c["n_embd"]
    embedding = TokenEmbedding(w.embedding(f"{at}wte"), place=w.embedding(f"{at}wpe"))
    blocks = []
    for i in range(c["n_layer"]):
        layer = f"{at}h.{i}"
        joint = w.linear(f"{layer}.attn.c_attn", transposed=True)
        parts = zip(joint.weight.detach().split(dim), joint.bias.detach().split(dim), strict=True)
        query, key, value = (linear(weight, bias) for weight, bias in parts)
        out = w.linear(f"{layer}.attn.c_proj", transposed=True)
        feed_forward = make_feed_forward(
            c["activation_function"],
            w.linear(f"{layer}.mlp.c_fc", transposed=True),
            w.linear(f"{layer}.mlp.c_proj", transposed=True),
        )
        blocks.append(
            make_block(
                make_mixer("softmax", dim, c["n_head"], (query, key, value, out)),
                w.layer_norm(f"{layer}.ln_1", eps),
                feed_forward,
                w.layer_norm(f"{layer}.ln_2", eps),
                norm_first=True,
            )
        )
    norm = w.layer_norm(f"{at}ln_f", eps)
    return Stack(embedding, blocks, norm=norm, head=_head(request, embedding), causal=True)


def llama(request: LoadRequest) -> Stack:
    """Llama and its kin: RMSNorm, rotary positions, grouped-query heads, gated feed-forward."""
    w, c = request.weights, request.config
    rope = c.get("rope_parameters") or {}
    if rope.get("rope_type", "default") != "default" or c.get("rope_scaling"):
        raise UnsupportedError(
            f"load does not support scaled rotary positions: {rope or c['rope_scaling']}"
        )
    if c.get("sliding_window") and c.get("use_sliding_window", True):
        raise UnsupportedError(f"load does not support sliding_window={c['sliding_window']}")
    base = rope.get("rope_theta", c.get("rope_theta", 10000.0))
    at, eps = w.prefix("model."), c["rms_norm_eps"]
    embedding = TokenEmbedding(w.embedding(f"{at}embed_tokens"))
    blocks = []
    for i in range(c["num_hidden_layers"]):
        layer = f"{at}layers.{i}"
        projections = tuple(w.linear(f"{layer}.self_attn.{part}_proj") for part in "qkvo")
        mixer = make_mixer(
            "softmax",
            c["hidden_size"],
            c["num_attention_heads"],
            projections,  # type: ignore[arg-type]
            num_kv_heads=c["num_key_value_heads"],
            position="rotary",
            position_options={"base": float(base), "pairing": request.pairing},
        )
        gate, up, down = (w.linear(f"{layer}.mlp.{part}_proj") for part in ("gate", "up", "down"))
        blocks.append(
            make_block(
                mixer,
                w.rms_norm(f"{layer}.input_layernorm", eps),
                make_feed_forward(c["hidden_act"], up, down, gate),
                w.rms_norm(f"{layer}.post_attention_layernorm", eps),
                norm_first=True,
            )
        )
    norm = w.rms_norm(f"{at}norm", eps)
    return Stack(embedding, blocks, norm=norm, head=_head(request, embedding), causal=True)


def _head(request: LoadRequest, embedding: TokenEmbedding) -> nn.Linear | None:
    """lm_head: a matrix of its own, or the embedding, which a file then need not repeat."""
    w, c = request.weights, request.config
    tied = c.get("tie_word_embeddings", c["model_type"] == "gpt2")
    if not tied and "lm_head.weight" not in w:
        return None
    head = linear(w["lm_head.weight"] if "lm_head.weight" in w else embedding.word.weight)
    if tied:
        head.weight = embedding.word.weight
    return head
