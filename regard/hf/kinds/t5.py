"""T5."""

from typing import Any, cast

from torch import nn

from regard.core import Mixer, UnsupportedError
from regard.hf.stack import EncoderDecoder, Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, make_block, make_mixer
from regard.models.decoder import DecoderBlock
from regard.positions.relative import T5


def t5(request: LoadRequest) -> Stack | EncoderDecoder:
    """Pre-norm with RMSNorm; one table of distances for all layers of a side; scores are not scaled."""
    w, c = request.weights, request.config
    eps = c["layer_norm_epsilon"]
    request.require("is_decoder", False)
    request.agree("", SHAPES)
    shared = w.embedding("shared")
    table = _t5_table(request, "encoder")
    blocks = []
    for i in range(c["num_layers"]):
        layer = f"encoder.block.{i}.layer"
        mixer, norm = _t5_mixer(request, f"{layer}.0", "SelfAttention", table)
        feed_forward, last = _t5_feed_forward(request, f"{layer}.1")
        blocks.append(make_block(mixer, norm, feed_forward, last, norm_first=True))
    encoder = Stack(
        _t5_tokens(request, "encoder", shared),
        blocks,
        norm=w.rms_norm("encoder.final_layer_norm", eps),
    )
    if "decoder.final_layer_norm.weight" not in w:
        return encoder
    request.require("is_encoder_decoder", True)
    table = _t5_table(request, "decoder")
    decoder = []
    for i in range(c.get("num_decoder_layers") or c["num_layers"]):
        layer = f"decoder.block.{i}.layer"
        own, own_norm = _t5_mixer(request, f"{layer}.0", "SelfAttention", table)
        cross, cross_norm = _t5_mixer(request, f"{layer}.1", "EncDecAttention", None)
        feed_forward, last = _t5_feed_forward(request, f"{layer}.2")
        block = DecoderBlock(1, own, cross, feed_forward)
        block.self_norm, block.cross_norm = cast(Any, own_norm), cast(Any, cross_norm)
        block.feed_forward_norm = cast(Any, last)
        decoder.append(block)
    last_norm = w.rms_norm("decoder.final_layer_norm", eps)
    scaled = c.get("scale_decoder_outputs", c.get("tie_word_embeddings", True))
    head = request.head("lm_head", shared, tied=True)  # "untied" says that outputs are not scaled
    return EncoderDecoder(
        encoder,
        _t5_tokens(request, "decoder", shared),
        decoder,
        last_norm,
        head,
        c["d_model"] ** -0.5 if scaled else 1.0,
    )


SHAPES = {
    "shared.weight": "vocab_size d_model",
    "encoder.block.0.layer.0.SelfAttention.q.weight": "num_heads*d_kv",
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": "relative_attention_num_buckets num_heads",
    "encoder.block.0.layer.1.DenseReluDense.wo.weight": "d_model d_ff",
}


def _t5_tokens(request: LoadRequest, side: str, shared: nn.Embedding) -> TokenEmbedding:
    """The shared table, unless the checkpoint has another for this side."""
    w, name = request.weights, f"{side}.embed_tokens"
    same = w.repeats(f"{name}.weight", shared.weight)
    return TokenEmbedding(shared if same else w.embedding(name))


def _t5_table(request: LoadRequest, side: str) -> T5:
    w, c = request.weights, request.config
    table = w[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    position = T5(
        num_heads=c["num_heads"],
        num_buckets=c["relative_attention_num_buckets"],
        max_distance=c["relative_attention_max_distance"],
        bidirectional=side == "encoder",
    ).to(table.dtype)
    position.load_state_dict({"table": table})
    return position


def _t5_mixer(
    request: LoadRequest, layer: str, name: str, table: T5 | None
) -> tuple[Mixer, nn.Module]:
    w, c = request.weights, request.config
    projections = w.linears(f"{layer}.{name}.{{}}", "qkvo")
    options: dict[str, Any] = {} if table is None else {"position": "t5"}
    mixer = make_mixer("softmax", c["d_model"], c["num_heads"], projections, scale=1.0, **options)
    if table is not None:
        mixer.position = table
    return mixer, w.rms_norm(f"{layer}.layer_norm", c["layer_norm_epsilon"])


def _t5_feed_forward(request: LoadRequest, layer: str) -> tuple[nn.Module, nn.Module]:
    w, c = request.weights, request.config
    name, proj = f"{layer}.DenseReluDense", c["feed_forward_proj"]
    gated = f"{name}.wi.weight" not in w
    request.require("is_gated_act", gated)
    if proj.startswith("gated") != gated:
        raise UnsupportedError(f"load does not support feed_forward_proj={proj!r} of these tensors")
    given = "gelu_new" if proj == "gated-gelu" else proj.rpartition("-")[2]
    c.setdefault("dense_act_fn", given)
    value, gate = (f"{name}.wi_1", f"{name}.wi_0") if gated else (f"{name}.wi", "")
    made = w.feed_forward(request.activation("dense_act_fn"), value, f"{name}.wo", gate)
    return made, w.rms_norm(f"{layer}.layer_norm", c["layer_norm_epsilon"])
