"""T5."""

from typing import Any, cast

from torch import nn

from regard.core import Mixer
from regard.hf.stack import EncoderDecoder, Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, linear, make_block, make_feed_forward, make_mixer
from regard.models.decoder import DecoderBlock
from regard.positions.relative import T5


def t5(request: LoadRequest) -> Stack | EncoderDecoder:
    """Pre-norm with RMSNorm; one table of distances for all layers of a side; scores are not scaled."""
    w, c = request.weights, request.config
    eps = c["layer_norm_epsilon"]
    embedding = TokenEmbedding(w.embedding("shared"))
    w.left -= {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    table = _t5_table(request, "encoder")
    blocks = []
    for i in range(c["num_layers"]):
        layer = f"encoder.block.{i}.layer"
        mixer, norm = _t5_mixer(request, f"{layer}.0", "SelfAttention", table)
        feed_forward, last = _t5_feed_forward(request, f"{layer}.1")
        blocks.append(make_block(mixer, norm, feed_forward, last, norm_first=True))
    encoder = Stack(embedding, blocks, norm=w.rms_norm("encoder.final_layer_norm", eps))
    if "decoder.final_layer_norm.weight" not in w:
        return encoder
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
    tied = c.get("tie_word_embeddings", True)
    head = linear(
        embedding.word.weight if tied or "lm_head.weight" not in w else w["lm_head.weight"]
    )
    if tied:
        head.weight = embedding.word.weight
        w.left.discard("lm_head.weight")
    scaled = c.get("scale_decoder_outputs", tied)
    return EncoderDecoder(
        encoder, embedding, decoder, last_norm, head, c["d_model"] ** -0.5 if scaled else 1.0
    )


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
    projections = tuple(w.linear(f"{layer}.{name}.{part}") for part in "qkvo")
    options: dict[str, Any] = {} if table is None else {"position": "t5"}
    mixer = make_mixer("softmax", c["d_model"], c["num_heads"], projections, scale=1.0, **options)  # type: ignore[arg-type]
    if table is not None:
        mixer.position = table
    return mixer, w.rms_norm(f"{layer}.layer_norm", c["layer_norm_epsilon"])


def _t5_feed_forward(request: LoadRequest, layer: str) -> tuple[nn.Module, nn.Module]:
    w, c = request.weights, request.config
    name, activation = f"{layer}.DenseReluDense", c["feed_forward_proj"].rpartition("-")[2]
    out = w.linear(f"{name}.wo")
    if f"{name}.wi.weight" in w:
        made = make_feed_forward(activation, w.linear(f"{name}.wi"), out)
    else:
        activation = "gelu_new" if activation == "gelu" else activation
        made = make_feed_forward(
            activation, w.linear(f"{name}.wi_1"), out, w.linear(f"{name}.wi_0")
        )
    return made, w.rms_norm(f"{layer}.layer_norm", c["layer_norm_epsilon"])
