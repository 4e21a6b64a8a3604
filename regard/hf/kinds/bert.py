"""BERT and its kin: RoBERTa, Longformer, BigBird, FNet."""

from torch import nn

from regard.core import Mixer, UnsupportedError, shown
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import ACTIVATIONS, LoadRequest, Norms, make_mixer
from regard.mixers.fnet import FNet

SHAPES = {
    "embeddings.word_embeddings.weight": "vocab_size hidden_size",
    "embeddings.position_embeddings.weight": "max_position_embeddings",
    "embeddings.token_type_embeddings.weight": "type_vocab_size",
    "encoder.layer.0.intermediate.dense.weight": "intermediate_size",
}


def bert(request: LoadRequest) -> Stack:
    """BERT and its kin: post-norm, learned positions, types."""
    w, c, _ = request
    kind = c["model_type"]
    norm = w.norms(nn.LayerNorm, c["layer_norm_eps"])
    request.require(
        is_decoder=False,
        position_embedding_type="absolute",
        add_cross_attention=False,
        use_tpu_fourier_optimizations=False,
    )
    at = w.prefix(f"{'bert' if kind == 'big_bird' else kind}.")
    request.agree(at, SHAPES)
    if kind == "big_bird":
        c.setdefault("attention_type", "block_sparse")
        request.one_of("attention_type", "block_sparse", "original_full")
        request.require(use_bias=f"{at}encoder.layer.0.attention.self.query.bias" in w)
    first = norm(f"{at}embeddings.LayerNorm")
    projected = f"{at}embeddings.projection"
    embedding = TokenEmbedding(
        w.embedding(f"{at}embeddings.word_embeddings"),
        place=w.embedding(f"{at}embeddings.position_embeddings"),
        kind=w.embedding(f"{at}embeddings.token_type_embeddings"),
        after=nn.Sequential(first, w.linear(projected)) if f"{projected}.weight" in w else first,
        scale=c["hidden_size"] ** 0.5 if c.get("rescale_embeddings", False) else 1.0,
        offset=c["pad_token_id"] + 1 if kind in ("roberta", "longformer") else 0,
    )
    blocks = []
    for i in range(request.depth("num_hidden_layers")):
        layer = f"{at}encoder.layer.{i}"
        part = "fourier" if kind == "fnet" else "attention"
        mixer = (
            FNet(c["hidden_size"]) if kind == "fnet" else _mixer(request, f"{layer}.attention", i)
        )
        names = f"{part}.output.LayerNorm", "output.LayerNorm", "intermediate.dense", "output.dense"
        blocks.append(request.block(mixer, norm, layer, names, norm_first=False))
    return Stack(embedding, blocks, head=_head(request, embedding, norm))


def _mixer(request: LoadRequest, name: str, i: int) -> Mixer:
    w, c, _ = request
    parts = "self.query", "self.key", "self.value", "output.dense"
    options = {}
    kind = "softmax"
    if c["model_type"] == "longformer":
        kind, window = "longformer", c["attention_window"]
        each = [window] * c["num_hidden_layers"] if isinstance(window, int) else window
        if len(each) != c["num_hidden_layers"] or any(width < 2 or width % 2 for width in each):
            raise UnsupportedError(
                f"load does not support longformer with attention_window={shown(window)} and "
                f"num_hidden_layers={c['num_hidden_layers']}: it reads an even number, or one for each layer"
            )
        options["window_size"] = each[i] // 2
    elif c.get("attention_type", "original_full") == "block_sparse":
        kind = "bigbird"
        options = {"block_size": c["block_size"], "num_random": c["num_random_blocks"], "seed": i}
        options["max_len"] = c["max_position_embeddings"]
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


def _head(request: LoadRequest, embedding: TokenEmbedding, norm: Norms) -> nn.Module | None:
    """The head of masked language models, whose last matrix may be the embedding."""
    w, c, _ = request
    if "cls.predictions.transform.dense.weight" in w:
        at = "cls.predictions."
        activation = request.activation("hidden_act")
        dense = f"{at}transform.dense"
        last = f"{at}transform.LayerNorm"
    elif "lm_head.dense.weight" in w:
        at, activation = "lm_head.", "gelu"
        dense, last = f"{at}dense", f"{at}layer_norm"
    else:
        return None
    # two names of one bias; where they differ, Transformers adds the decoder's
    bias = w[f"{at}decoder.bias" if f"{at}decoder.bias" in w else f"{at}bias"]
    w.repeats(f"{at}bias", bias)
    tied = c.get("tie_word_embeddings", True)
    logits = request.head(f"{at}decoder", embedding.word, bias, tied=tied)
    return nn.Sequential(w.linear(dense), ACTIVATIONS[activation](), norm(last), logits)
