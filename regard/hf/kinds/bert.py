"""BERT and its kin: RoBERTa, Longformer, BigBird, FNet."""

from typing import Any

from torch import nn

from regard.core import Mixer, UnsupportedError
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import (
    Activation,
    LoadRequest,
    make_block,
    make_mixer,
)
from regard.mixers.fnet import FNet

SHAPES = {
    "embeddings.word_embeddings.weight": "vocab_size hidden_size",
    "embeddings.position_embeddings.weight": "max_position_embeddings",
    "embeddings.token_type_embeddings.weight": "type_vocab_size",
    "encoder.layer.0.intermediate.dense.weight": "intermediate_size",
}


def bert(request: LoadRequest) -> Stack:
    """BERT and its kin: post-norm, learned positions, types."""
    w, c = request.weights, request.config
    kind, eps = c["model_type"], c["layer_norm_eps"]
    request.require("is_decoder", False)
    request.require("position_embedding_type", "absolute")
    request.require("add_cross_attention", False)
    request.require("use_tpu_fourier_optimizations", False)
    at = w.prefix(f"{'bert' if kind == 'big_bird' else kind}.")
    request.agree(at, SHAPES)
    if kind == "big_bird":
        request.require("attention_type", "block_sparse", "original_full")
        request.require("use_bias", f"{at}encoder.layer.0.attention.self.query.bias" in w)
    norm = w.layer_norm(f"{at}embeddings.LayerNorm", eps)
    projected = f"{at}embeddings.projection"
    embedding = TokenEmbedding(
        w.embedding(f"{at}embeddings.word_embeddings"),
        place=w.embedding(f"{at}embeddings.position_embeddings"),
        kind=w.embedding(f"{at}embeddings.token_type_embeddings"),
        after=nn.Sequential(norm, w.linear(projected)) if f"{projected}.weight" in w else norm,
        scale=c["hidden_size"] ** 0.5 if c.get("rescale_embeddings", False) else 1.0,
        offset=c["pad_token_id"] + 1 if kind in ("roberta", "longformer") else 0,
    )
    blocks = []
    for i in range(c["num_hidden_layers"]):
        layer = f"{at}encoder.layer.{i}"
        if kind == "fnet":
            mixer: Mixer = FNet(c["hidden_size"])
            mixer_norm = w.layer_norm(f"{layer}.fourier.output.LayerNorm", eps)
        else:
            mixer = _bert_mixer(request, f"{layer}.attention", i)
            mixer_norm = w.layer_norm(f"{layer}.attention.output.LayerNorm", eps)
        feed_forward = w.feed_forward(
            request.activation("hidden_act"), f"{layer}.intermediate.dense", f"{layer}.output.dense"
        )
        last = w.layer_norm(f"{layer}.output.LayerNorm", eps)
        blocks.append(make_block(mixer, mixer_norm, feed_forward, last, norm_first=False))
    return Stack(embedding, blocks, head=_bert_head(request, embedding))


def _bert_mixer(request: LoadRequest, name: str, i: int) -> Mixer:
    w, c = request.weights, request.config
    parts = "self.query", "self.key", "self.value", "output.dense"
    options: dict[str, Any] = {}
    kind = "softmax"
    if c["model_type"] == "longformer":
        kind, window = "longformer", c["attention_window"]
        each = [window] * c["num_hidden_layers"] if isinstance(window, int) else window
        if len(each) != c["num_hidden_layers"] or any(width < 2 or width % 2 for width in each):
            raise UnsupportedError(
                f"load does not support longformer with attention_window={window} and "
                f"num_hidden_layers={c['num_hidden_layers']}: it reads an even number, or one for each layer"
            )
        options["window_size"] = each[i] // 2
    elif c.get("attention_type", "original_full") == "block_sparse":
        kind = "bigbird"
        options["max_len"] = c["max_position_embeddings"]
        options |= {"block_size": c["block_size"], "num_random": c["num_random_blocks"], "seed": i}
    mixer = make_mixer(
        kind,
        c["hidden_size"],
        c["num_attention_heads"],
        w.linears(f"{name}.{{}}", parts),
        **options,
    )
    if kind == "longformer":
        for part in ("query", "key", "value"):
            setattr(mixer.global_heads, part, w.linear(f"{name}.self.{part}_global"))
    return mixer


def _bert_head(request: LoadRequest, embedding: TokenEmbedding) -> nn.Module | None:
    """The head of masked language models, whose last matrix may be the embedding."""
    w, c = request.weights, request.config
    if "cls.predictions.transform.dense.weight" in w:
        at, activation = "cls.predictions.", request.activation("hidden_act")
        dense, norm = f"{at}transform.dense", f"{at}transform.LayerNorm"
    elif "lm_head.dense.weight" in w:
        at, activation = "lm_head.", "gelu"
        dense, norm = f"{at}dense", f"{at}layer_norm"
    else:
        return None
    # two names of one bias; where they differ, Transformers adds the decoder's
    bias = w[f"{at}decoder.bias" if f"{at}decoder.bias" in w else f"{at}bias"]
    w.repeats(f"{at}bias", bias)
    tied = c.get("tie_word_embeddings", True)
    logits = request.head(f"{at}decoder", embedding.word, bias, tied=tied)
    return nn.Sequential(
        w.linear(dense), Activation(activation), w.layer_norm(norm, c["layer_norm_eps"]), logits
    )
