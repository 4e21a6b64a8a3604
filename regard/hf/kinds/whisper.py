"""Whisper: speech to text, an encoder behind two convolutions and a decoder with cross attention (arXiv 2212.04356)."""

from typing import Any, cast

import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core import ShapeError
from regard.hf.stack import EncoderDecoder, Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, make_block, make_feed_forward, make_mixer
from regard.models.decoder import DecoderBlock

EPS = 1e-5


class SpeechEncoder(nn.Module):
    """Spectrogram [B mel 2S] -> hidden [B S D]: two convolutions, the second with stride 2, positions, a stack.

    A spectrogram may be shorter than that of 30 seconds, which is what Transformers insists on. `valid` [B S] is of hidden.
    """

    def __init__(self, convolutions: list[nn.Conv1d], place: nn.Embedding, stack: Stack):
        super().__init__()
        self.convolutions = nn.ModuleList(convolutions)
        self.place, self.stack = place, stack

    def forward(
        self, features: Float[Tensor, "B mel frames"], *, valid: Bool[Tensor, "B S"] | None = None
    ) -> Float[Tensor, "B S D"]:
        return self.stack.norm(self.stack.run(self.embed(features), self.stack.mask(valid)))

    def embed(self, features: Float[Tensor, "B mel frames"]) -> Float[Tensor, "B S D"]:
        first = cast(nn.Conv1d, self.convolutions[0])
        most = 2 * self.place.num_embeddings
        if (
            features.dim() != 3
            or features.shape[1] != first.in_channels
            or features.shape[2] > most
        ):
            raise ShapeError(
                f"whisper: a spectrogram must have shape [B, {first.in_channels}, up to {most}], "
                f"got {list(features.shape)}"
            )
        for convolution in self.convolutions:
            features = F.gelu(convolution(features))
        x = features.transpose(1, 2)
        return x + self.place.weight[: x.shape[1]]


def whisper(request: LoadRequest) -> EncoderDecoder:
    w, c = request.weights, request.config
    request.require("scale_embedding", False)
    at = w.prefix("model.encoder.")
    at = "model." if at else ""
    request.agree(at, SHAPES)
    request.require("num_hidden_layers", c["encoder_layers"])  # another name of it, in old files
    convolutions = [
        _convolution(request, f"{at}encoder.conv{n}", stride) for n, stride in ((1, 1), (2, 2))
    ]
    place = w.embedding(f"{at}encoder.embed_positions")
    place.requires_grad_(False)  # sinusoids
    blocks = []
    for i in range(c["encoder_layers"]):
        layer = f"{at}encoder.layers.{i}"
        mixer = _mixer(request, f"{layer}.self_attn", c["encoder_attention_heads"])
        norms = [w.layer_norm(f"{layer}.{part}", EPS) for part in NORMS]
        blocks.append(
            make_block(mixer, norms[0], _feed_forward(request, layer), norms[1], norm_first=True)
        )
    norm = w.layer_norm(f"{at}encoder.layer_norm", EPS)
    embedding = TokenEmbedding(
        w.embedding(f"{at}decoder.embed_tokens"), place=w.embedding(f"{at}decoder.embed_positions")
    )
    encoder = SpeechEncoder(convolutions, place, Stack(embedding, blocks, norm=norm))
    del encoder.stack.embedding  # its input is no tokens
    decoder = []
    for i in range(c["decoder_layers"]):
        layer = f"{at}decoder.layers.{i}"
        heads = c["decoder_attention_heads"]
        own, cross = (
            _mixer(request, f"{layer}.{part}", heads) for part in ("self_attn", "encoder_attn")
        )
        block = DecoderBlock(1, own, cross, _feed_forward(request, layer))
        block.self_norm, block.cross_norm, block.feed_forward_norm = (
            cast(Any, w.layer_norm(f"{layer}.{part}", EPS))
            for part in (NORMS[0], "encoder_attn_layer_norm", NORMS[1])
        )
        decoder.append(block)
    last = w.layer_norm(f"{at}decoder.layer_norm", EPS)
    head = request.head("proj_out", embedding.word, tied=c.get("tie_word_embeddings", True))
    return EncoderDecoder(encoder, embedding, decoder, last, head)


SHAPES = {
    "encoder.conv1.weight": "d_model num_mel_bins",
    "encoder.embed_positions.weight": "max_source_positions",
    "encoder.layers.0.fc1.weight": "encoder_ffn_dim",
    "decoder.embed_tokens.weight": "vocab_size d_model",
    "decoder.embed_positions.weight": "max_target_positions",
    "decoder.layers.0.fc1.weight": "decoder_ffn_dim",
}
NORMS = ("self_attn_layer_norm", "final_layer_norm")


def _convolution(request: LoadRequest, name: str, stride: int) -> nn.Conv1d:
    weight, bias = request.weights[f"{name}.weight"], request.weights[f"{name}.bias"]
    made = nn.Conv1d(
        weight.shape[1], len(weight), weight.shape[2], stride=stride, padding=1, dtype=weight.dtype
    )
    made.load_state_dict({"weight": weight, "bias": bias})
    return made


def _mixer(request: LoadRequest, name: str, num_heads: int) -> Any:
    parts = ("q_proj", "k_proj", "v_proj", "out_proj")
    query, key, value, out = (request.weights.linear(f"{name}.{part}") for part in parts)
    return make_mixer("softmax", query.in_features, num_heads, (query, key, value, out))


def _feed_forward(request: LoadRequest, layer: str) -> nn.Module:
    w = request.weights
    first, second = w.linear(f"{layer}.fc1"), w.linear(f"{layer}.fc2")
    return make_feed_forward(request.activation("activation_function"), first, second)
