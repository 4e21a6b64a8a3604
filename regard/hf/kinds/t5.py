"""T5."""

from typing import Any

from torch import nn

from regard.core import Mixer, UnsupportedError, shown
from regard.hf.stack import EncoderDecoder, Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, make_mixer
from regard.models.blocks import Block
from regard.models.decoder import DecoderBlock
from regard.positions.relative import T5

SHAPES = {
    "shared.weight": "vocab_size d_model",
    "encoder.block.0.layer.0.SelfAttention.q.weight": "num_heads*d_kv",
    "encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight": "relative_attention_num_buckets num_heads",
    "encoder.block.0.layer.1.DenseReluDense.wo.weight": "d_model d_ff",
}


def t5(request: LoadRequest) -> Stack | EncoderDecoder:
    """Pre-norm with RMSNorm; one table of distances for all layers of a side; scores are not scaled."""
    w, c, _ = request
    norm = w.norms(nn.RMSNorm, c["layer_norm_epsilon"])
    request.require(is_decoder=False)
    request.agree("", SHAPES)
    shared = w.embedding("shared")
    depth = request.depth("num_layers")
    blocks = [_block(request, *both) for both in _mixers(request, "encoder", depth)]
    encoder = Stack(
        _tokens(request, "encoder", shared), blocks, norm=norm("encoder.final_layer_norm")
    )
    if "decoder.final_layer_norm.weight" not in w:
        return encoder
    request.require(is_encoder_decoder=True)
    decoder = []
    if c.get("num_decoder_layers"):
        depth = request.depth("num_decoder_layers")
    for layer, own in _mixers(request, "decoder", depth):
        cross = _mixer(request, f"{layer}.1.EncDecAttention")
        made: Any = _block(request, layer, own, 2)  # of the norms and the feed-forward layer
        block = DecoderBlock(1, own, cross, made.feed_forward)
        block.self_norm = made.mixer_norm
        block.cross_norm = norm(f"{layer}.1.layer_norm")
        block.feed_forward_norm = made.feed_forward_norm
        decoder.append(block)
    scaled = c.get("scale_decoder_outputs", c.get("tie_word_embeddings", True))
    return EncoderDecoder(
        encoder,
        _tokens(request, "decoder", shared),
        decoder,
        norm("decoder.final_layer_norm"),
        request.head("lm_head", shared, tied=True),  # "untied" says that outputs are not scaled
        c["d_model"] ** -0.5 if scaled else 1.0,
    )


def _tokens(request: LoadRequest, side: str, shared: nn.Embedding) -> TokenEmbedding:
    """The shared table, unless the checkpoint has another for this side."""
    w, name = request.weights, f"{side}.embed_tokens"
    same = w.repeats(f"{name}.weight", shared.weight)
    return TokenEmbedding(shared if same else w.embedding(name))


def _mixers(request: LoadRequest, side: str, depth: int) -> list[tuple[str, Mixer]]:
    """The names of a side's layers, and their self-mixers around one table of distances."""
    w, c, _ = request
    table = w[f"{side}.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
    position = T5(
        num_heads=c["num_heads"],
        num_buckets=c["relative_attention_num_buckets"],
        max_distance=c["relative_attention_max_distance"],
        bidirectional=side == "encoder",
    ).to(table.dtype)
    position.load_state_dict({"table": table})
    layers = [f"{side}.block.{i}.layer" for i in range(depth)]
    mixers = [_mixer(request, f"{layer}.0.SelfAttention", position="t5") for layer in layers]
    for mixer in mixers:
        mixer.position = position
    return list(zip(layers, mixers, strict=True))


def _mixer(request: LoadRequest, name: str, **options: Any) -> Mixer:
    c = request.config
    projections = request.weights.linears(f"{name}.{{}}", "qkvo")
    return make_mixer("softmax", c["d_model"], c["num_heads"], projections, scale=1.0, **options)


def _block(request: LoadRequest, layer: str, mixer: Mixer, last: int = 1) -> Block:
    """last: the number of the part of the layer that is the feed-forward layer."""
    w, c, _ = request
    name = f"{last}.DenseReluDense"
    proj = c["feed_forward_proj"]
    gated = f"{layer}.{name}.wi.weight" not in w
    request.require(is_gated_act=gated)
    if proj.startswith("gated") != gated:
        raise UnsupportedError(
            f"load does not support feed_forward_proj={shown(proj)} of these tensors"
        )
    given = "gelu_new" if proj == "gated-gelu" else proj.rpartition("-")[2]
    c.setdefault("dense_act_fn", given)
    parts = ("wi_1", "wo", "wi_0") if gated else ("wi", "wo")
    names = ("0.layer_norm", f"{last}.layer_norm", *(f"{name}.{part}" for part in parts))
    norm = w.norms(nn.RMSNorm, c["layer_norm_epsilon"])
    return request.block(mixer, norm, layer, names, activation="dense_act_fn")
