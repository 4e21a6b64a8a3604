"""Checkpoints of Transformers as stacks of Regard's mixers: `model = regard.hf.load("folder")`, or of a state dict and config.

    hidden = model(tokens, valid=valid)      logits = model.head(hidden)      model.attention_maps(tokens, valid=valid)

Read: BERT, RoBERTa, Longformer, BigBird (full attention), FNet, XLNet, Transformer-XL, GPT-2,
Llama's kin, T5. Padding is as if absent, so
that positions count valid tokens; Transformers' BERT counts columns, which is the same for padding on the right.
Weights come from safetensors alone, and nothing is run from a checkpoint.
"""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from safetensors.torch import load_file
from torch import Tensor, nn

from regard.core import Mask, Mixer, OptionError, StoredDataError, UnsupportedError
from regard.functional.positions.rotary import Pairing
from regard.mixers.build import build
from regard.mixers.fnet import FNet
from regard.mixers.transformer_xl import TransformerXL
from regard.models.block import Block
from regard.models.decoder import DecoderBlock
from regard.models.tokens import places
from regard.nn.feed_forward import FeedForward
from regard.nn.heads import Heads
from regard.positions.relative import T5


class Weights:
    """The tensors of a checkpoint by name, below a prefix; `left` are the names that nobody has read."""

    def __init__(self, tensors: Mapping[str, Tensor]):
        self.tensors, self.left = dict(tensors), set(tensors)

    def __contains__(self, name: str) -> bool:
        return name in self.tensors

    def __getitem__(self, name: str) -> Tensor:
        if name not in self.tensors:
            raise StoredDataError(f"the checkpoint has no tensor {name!r}")
        self.left.discard(name)
        return self.tensors[name].detach().clone()

    def prefix(self, *candidates: str) -> str:
        """The first of the prefixes that a name begins with; checkpoints of headless models have none."""
        for prefix in candidates:
            if any(name.startswith(prefix) for name in self.tensors):
                return prefix
        return ""

    def linear(self, name: str, *, transposed: bool = False) -> nn.Linear:
        weight = self[f"{name}.weight"]
        bias = self[f"{name}.bias"] if f"{name}.bias" in self else None
        return linear(weight.T.contiguous() if transposed else weight, bias)

    def embedding(self, name: str) -> nn.Embedding:
        return nn.Embedding.from_pretrained(self[f"{name}.weight"], freeze=False)

    def layer_norm(self, name: str, eps: float) -> nn.LayerNorm:
        weight, bias = self[f"{name}.weight"], self[f"{name}.bias"]
        norm = nn.LayerNorm(len(weight), eps, dtype=weight.dtype)
        norm.load_state_dict({"weight": weight, "bias": bias})
        return norm

    def rms_norm(self, name: str, eps: float) -> nn.RMSNorm:
        weight = self[f"{name}.weight"]
        norm = nn.RMSNorm(len(weight), eps, dtype=weight.dtype)
        norm.load_state_dict({"weight": weight})
        return norm


def linear(weight: Float[Tensor, "F D"], bias: Float[Tensor, "F"] | None = None) -> nn.Linear:
    made = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None, dtype=weight.dtype)
    made.load_state_dict({"weight": weight} if bias is None else {"weight": weight, "bias": bias})
    return made


class Embedding(nn.Module):
    """Tokens, their positions and types, as far as a checkpoint has them; `offset` is the first position's row.

    scale: what the rows of tokens are multiplied by.
    """

    def __init__(
        self,
        word: nn.Embedding,
        *,
        place: nn.Embedding | None = None,
        kind: nn.Embedding | None = None,
        after: nn.Module | None = None,
        offset: int = 0,
        scale: float = 1.0,
    ):
        super().__init__()
        self.word, self.place, self.kind, self.offset = word, place, kind, offset
        self.scale = scale
        self.after = nn.Identity() if after is None else after

    def forward(
        self, tokens: Int[Tensor, "B T"], valid: Bool[Tensor, "B T"] | None, types: Tensor | None
    ) -> Float[Tensor, "B T D"]:
        x = self.scale * self.word(tokens)
        if self.kind is not None:
            x = x + self.kind(torch.zeros_like(tokens) if types is None else types)
        elif types is not None:
            raise UnsupportedError(
                "this checkpoint does not support types: it has no table of them"
            )
        if self.place is not None:
            x = x + self.place(places(tokens, valid) + self.offset)
        return self.after(x)


class Stack(nn.Module):
    """tokens [B T] -> hidden [B T D]; where `valid` is False the output means nothing. `head` gives logits, if there is one."""

    def __init__(
        self,
        embedding: Embedding,
        blocks: list[Block],
        *,
        norm: nn.Module | None = None,
        head: nn.Module | None = None,
        causal: bool = False,
    ):
        super().__init__()
        self.embedding, self.blocks = embedding, nn.ModuleList(blocks)
        self.norm = nn.Identity() if norm is None else norm
        self.head, self.causal = head, causal
        self.left: tuple[str, ...] = ()

    @property
    def mixers(self) -> list[Mixer]:
        return [cast(Block, block).mixer for block in self.blocks]

    def forward(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        valid: Bool[Tensor, "B T"] | None = None,
        types: Int[Tensor, "B T"] | None = None,
        global_tokens: Bool[Tensor, "B T"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        x, mask = self.embedding(tokens, valid, types), self._mask(valid, global_tokens)
        for block in self.blocks:
            x = block(x, mask=mask)
        return self.norm(x)

    def attention_maps(
        self,
        tokens: Int[Tensor, "B T"],
        *,
        valid: Bool[Tensor, "B T"] | None = None,
        types: Int[Tensor, "B T"] | None = None,
        global_tokens: Bool[Tensor, "B T"] | None = None,
    ) -> list[Float[Tensor, "B H T T"]]:
        """The weights of every layer."""
        x, mask, maps = self.embedding(tokens, valid, types), self._mask(valid, global_tokens), []
        for module in self.blocks:
            block = cast(Block, module)
            entering = block.mixer_norm(x) if block.norm_first else x
            maps.append(block.mixer.attention_map(entering, mask=mask))
            x = block(x, mask=mask)
        return maps

    def _mask(self, valid: Tensor | None, global_tokens: Tensor | None) -> Mask:
        return Mask(causal=self.causal, valid=valid, global_tokens=global_tokens)


class EncoderDecoder(nn.Module):
    """source [B S], target [B T] -> hidden [B T D] of the decoder; `logits(hidden)`."""

    def __init__(
        self,
        encoder: Stack,
        embedding: Embedding,
        blocks: list[DecoderBlock],
        norm: nn.Module,
        head: nn.Module,
        scale: float,
    ):
        super().__init__()
        self.encoder, self.embedding = encoder, embedding
        self.blocks, self.norm, self.head, self.scale = nn.ModuleList(blocks), norm, head, scale
        self.left: tuple[str, ...] = ()

    def forward(
        self,
        source: Int[Tensor, "B S"],
        target: Int[Tensor, "B T"],
        *,
        source_valid: Bool[Tensor, "B S"] | None = None,
    ) -> Float[Tensor, "B T D"]:
        context = self.encoder(source, valid=source_valid)
        x = self.embedding(target, None, None)
        for block in self.blocks:
            x = block(x, context, mask=Mask(causal=True), seen=Mask(valid=source_valid))
        return self.norm(x)

    def logits(self, hidden: Float[Tensor, "B T D"]) -> Float[Tensor, "B T vocab"]:
        return self.head(hidden * self.scale)


def load(
    source: str | Path | Mapping[str, Tensor],
    config: Mapping[str, Any] | None = None,
    *,
    pairing: Pairing = "half",
) -> Stack | EncoderDecoder:
    """A checkpoint as a stack of mixers: a folder with config.json and safetensors, or a state dict and its config.

    config: `model.config.to_dict()`. pairing: which channels rotary positions turn together; Transformers' files are
    "half", those of GGUF and of Llama's first release "adjacent". `left` of the result are tensors that were not read.
    Raises UnsupportedError for a kind of model, or a setting of one, that is not read.
    """
    if isinstance(source, str | Path):
        if config is not None:
            raise OptionError(
                "load: a folder has its own config.json; give config with a state dict"
            )
        config, source = _read(Path(source))
    elif config is None:
        raise OptionError("load: a state dict needs its config: model.config.to_dict()")
    kind = config.get("model_type")
    if kind not in KINDS:
        raise UnsupportedError(
            f"load does not support model_type {kind!r}: it reads {', '.join(KINDS)}"
        )
    if pairing != "half" and KINDS[kind] is not _llama:
        raise OptionError(
            f"load: {kind} has no rotary positions, so pairing={pairing!r} means nothing"
        )
    weights = Weights(source)
    made = KINDS[kind](Request(weights, config, pairing))
    made.left = tuple(sorted(weights.left))
    return made.eval()


def _read(folder: Path) -> tuple[dict[str, Any], dict[str, Tensor]]:
    config = json.loads((folder / "config.json").read_text())
    index = folder / "model.safetensors.index.json"
    names = {"model.safetensors"}
    if index.exists():
        names = set(json.loads(index.read_text())["weight_map"].values())
    tensors: dict[str, Tensor] = {}
    for name in sorted(names):
        tensors |= load_file(folder / name)
    return config, tensors


class Request(NamedTuple):
    weights: Weights
    config: Mapping[str, Any]
    pairing: Pairing

    def require(self, name: str, *values: object) -> None:
        """Raise UnsupportedError unless the setting has one of these values, the first by default."""
        found = self.config.get(name, values[0])
        if found not in values:
            raise UnsupportedError(
                f"load does not support {self.config['model_type']} with {name}={found!r}: it reads "
                f"{' or '.join(map(repr, values))}"
            )


# ---------------------------------------------------------------------- parts


def tanh_gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": F.gelu,
    "gelu_new": tanh_gelu,
    "gelu_pytorch_tanh": tanh_gelu,
    "relu": F.relu,
    "silu": F.silu,
}


def _activation(name: str) -> Callable[[Tensor], Tensor]:
    if name not in ACTIVATIONS:
        raise UnsupportedError(f"load does not support {name!r}: it reads {', '.join(ACTIVATIONS)}")
    return ACTIVATIONS[name]


def _feed_forward(
    activation: str, value: nn.Linear, out: nn.Linear, gate: nn.Linear | None = None
) -> FeedForward:
    made = FeedForward(1, 1, activation=_activation(activation), gated=gate is not None)
    made.value, made.out, made.gate = value, out, gate
    return made


def _mixer(
    name: str,
    dim: int,
    num_heads: int,
    projections: tuple[nn.Linear, nn.Linear, nn.Linear, nn.Linear],
    **options: Any,
) -> Mixer:
    """A mixer with these projections to queries, keys, values, and out of the heads, of any width."""
    query, key, value, out = projections
    mixer = build(name, dim=query.out_features, num_heads=num_heads, **options)
    heads = mixer.heads
    assert isinstance(heads, Heads)
    heads.query, heads.key, heads.value, heads.out = query, key, value, out
    mixer.dim = dim
    return mixer.to(query.weight.dtype)


def _block(
    mixer: Mixer,
    mixer_norm: nn.Module,
    feed_forward: nn.Module,
    norm: nn.Module,
    *,
    norm_first: bool,
) -> Block:
    block = Block(1, mixer, feed_forward, norm_first=norm_first)
    block.mixer_norm, block.feed_forward_norm = cast(Any, mixer_norm), cast(Any, norm)
    return block


# ---------------------------------------------------------------------- kinds


def _bert(request: Request) -> Stack:
    """BERT and its kin: post-norm, learned positions, types."""
    w, c = request.weights, request.config
    kind, eps = c["model_type"], c["layer_norm_eps"]
    request.require("is_decoder", False)
    request.require("position_embedding_type", "absolute")
    if kind == "big_bird":
        request.require("attention_type", "original_full")
    at = w.prefix(f"{'bert' if kind == 'big_bird' else kind}.")
    norm = w.layer_norm(f"{at}embeddings.LayerNorm", eps)
    projected = f"{at}embeddings.projection"
    embedding = Embedding(
        w.embedding(f"{at}embeddings.word_embeddings"),
        place=w.embedding(f"{at}embeddings.position_embeddings"),
        kind=w.embedding(f"{at}embeddings.token_type_embeddings"),
        after=nn.Sequential(norm, w.linear(projected)) if f"{projected}.weight" in w else norm,
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
        feed_forward = _feed_forward(
            c["hidden_act"],
            w.linear(f"{layer}.intermediate.dense"),
            w.linear(f"{layer}.output.dense"),
        )
        last = w.layer_norm(f"{layer}.output.LayerNorm", eps)
        blocks.append(_block(mixer, mixer_norm, feed_forward, last, norm_first=False))
    return Stack(embedding, blocks, head=_bert_head(request, embedding))


def _bert_mixer(request: Request, name: str, i: int) -> Mixer:
    w, c = request.weights, request.config
    projections = tuple(w.linear(f"{name}.self.{part}") for part in ("query", "key", "value"))
    out = w.linear(f"{name}.output.dense")
    options: dict[str, Any] = {}
    if c["model_type"] == "longformer":
        window = c["attention_window"]
        options["window_size"] = (window if isinstance(window, int) else window[i]) // 2
    mixer = _mixer(
        "longformer" if options else "softmax",
        c["hidden_size"],
        c["num_attention_heads"],
        (*projections, out),  # type: ignore[arg-type]
        **options,
    )
    if options:
        mixer.global_heads = nn.ModuleDict(
            {part: w.linear(f"{name}.self.{part}_global") for part in ("query", "key", "value")}
        )
    return mixer


def _bert_head(request: Request, embedding: Embedding) -> nn.Module | None:
    """The head of masked language models, whose last matrix may be the embedding."""
    w, c = request.weights, request.config
    if "cls.predictions.transform.dense.weight" in w:
        dense, norm, last = (
            f"cls.predictions.{name}"
            for name in ("transform.dense", "transform.LayerNorm", "decoder")
        )
        bias, activation = "cls.predictions.bias", c["hidden_act"]
    elif "lm_head.dense.weight" in w:
        dense, norm, last = "lm_head.dense", "lm_head.layer_norm", "lm_head.decoder"
        bias, activation = "lm_head.bias", "gelu"
    else:
        return None
    logits = linear(embedding.word.weight, w[bias])
    if f"{last}.weight" in w:
        w.left -= {f"{last}.weight", f"{last}.bias"}
    if c.get("tie_word_embeddings", True):
        logits.weight = embedding.word.weight
    elif f"{last}.weight" in w:
        logits = linear(w[f"{last}.weight"], w[bias])
    return nn.Sequential(
        w.linear(dense), Activation(activation), w.layer_norm(norm, c["layer_norm_eps"]), logits
    )


class Activation(nn.Module):
    def __init__(self, name: str):
        super().__init__()
        self.function = _activation(name)

    def forward(self, x: Float[Tensor, "*b D"]) -> Float[Tensor, "*b D"]:
        return self.function(x)


def _gpt2(request: Request) -> Stack:
    """Pre-norm, learned positions, one matrix for queries, keys and values, stored transposed."""
    w, c = request.weights, request.config
    request.require("scale_attn_weights", True)
    request.require("scale_attn_by_inverse_layer_idx", False)
    request.require("add_cross_attention", False)
    at, eps, dim = w.prefix("transformer."), c["layer_norm_epsilon"], c["n_embd"]
    embedding = Embedding(w.embedding(f"{at}wte"), place=w.embedding(f"{at}wpe"))
    blocks = []
    for i in range(c["n_layer"]):
        layer = f"{at}h.{i}"
        joint = w.linear(f"{layer}.attn.c_attn", transposed=True)
        parts = zip(joint.weight.detach().split(dim), joint.bias.detach().split(dim), strict=True)
        query, key, value = (linear(weight, bias) for weight, bias in parts)
        out = w.linear(f"{layer}.attn.c_proj", transposed=True)
        feed_forward = _feed_forward(
            c["activation_function"],
            w.linear(f"{layer}.mlp.c_fc", transposed=True),
            w.linear(f"{layer}.mlp.c_proj", transposed=True),
        )
        blocks.append(
            _block(
                _mixer("softmax", dim, c["n_head"], (query, key, value, out)),
                w.layer_norm(f"{layer}.ln_1", eps),
                feed_forward,
                w.layer_norm(f"{layer}.ln_2", eps),
                norm_first=True,
            )
        )
    norm = w.layer_norm(f"{at}ln_f", eps)
    return Stack(embedding, blocks, norm=norm, head=_head(request, embedding), causal=True)


def _llama(request: Request) -> Stack:
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
    embedding = Embedding(w.embedding(f"{at}embed_tokens"))
    blocks = []
    for i in range(c["num_hidden_layers"]):
        layer = f"{at}layers.{i}"
        projections = tuple(w.linear(f"{layer}.self_attn.{part}_proj") for part in "qkvo")
        mixer = _mixer(
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
            _block(
                mixer,
                w.rms_norm(f"{layer}.input_layernorm", eps),
                _feed_forward(c["hidden_act"], up, down, gate),
                w.rms_norm(f"{layer}.post_attention_layernorm", eps),
                norm_first=True,
            )
        )
    norm = w.rms_norm(f"{at}norm", eps)
    return Stack(embedding, blocks, norm=norm, head=_head(request, embedding), causal=True)


def _head(request: Request, embedding: Embedding) -> nn.Linear | None:
    """lm_head: a matrix of its own, or the embedding, which a file then need not repeat."""
    w, c = request.weights, request.config
    tied = c.get("tie_word_embeddings", c["model_type"] == "gpt2")
    if not tied and "lm_head.weight" not in w:
        return None
    head = linear(w["lm_head.weight"] if "lm_head.weight" in w else embedding.word.weight)
    if tied:
        head.weight = embedding.word.weight
    return head


def _xlnet(request: Request) -> Stack:
    """The content stream over all tokens, without memory: what fine-tuning uses. Segments are left out."""
    w, c = request.weights, request.config
    request.require("attn_type", "bi")
    request.require("clamp_len", -1)
    request.require("bi_data", False)
    at, dim, eps = w.prefix("transformer."), c["d_model"], c["layer_norm_eps"]
    blocks = []
    for i in range(c["n_layer"]):
        layer = f"{at}layer.{i}"
        q, k, v, o, r = (w[f"{layer}.rel_attn.{part}"].flatten(1) for part in "qkvor")
        mixer = TransformerXL(dim, num_heads=c["n_head"])
        mixer.heads.load_state_dict(
            {"query.weight": q.T, "key.weight": k.T, "value.weight": v.T, "out.weight": o}
        )
        u, v_bias = (w[f"{layer}.rel_attn.r_{part}_bias"] for part in "wr")
        mixer.position.load_state_dict({"distance.weight": r.T, "u": u, "v": v_bias})
        feed_forward = _feed_forward(
            c["ff_activation"], w.linear(f"{layer}.ff.layer_1"), w.linear(f"{layer}.ff.layer_2")
        )
        norms = [w.layer_norm(f"{layer}.{part}.layer_norm", eps) for part in ("rel_attn", "ff")]
        blocks.append(_block(mixer.to(q.dtype), norms[0], feed_forward, norms[1], norm_first=False))
    embedding = Embedding(w.embedding(f"{at}word_embedding"))
    return Stack(embedding, blocks)


def _transfo_xl(request: Request) -> Stack:
    """The layout that Transformers had to 4.35, that of the paper's code; of its state, tokens of one call are seen alone."""
    w, c = request.weights, request.config
    request.require("attn_type", 0)
    request.require("pre_lnorm", False)
    request.require("div_val", 1)
    request.require("d_embed", c["d_model"])
    at, dim, eps = w.prefix("transformer."), c["d_model"], c.get("layer_norm_epsilon", 1e-5)
    blocks = []
    for i in range(c["n_layer"]):
        layer = f"{at}layers.{i}"
        joint = w[f"{layer}.dec_attn.qkv_net.weight"].split(dim)
        query, key, value = map(linear, joint)
        mixer = _mixer(
            "transformer_xl",
            dim,
            c["n_head"],
            (query, key, value, w.linear(f"{layer}.dec_attn.o_net")),
            mem_len=c["mem_len"],
            same_length=c["same_length"],
            clamp_len=c["clamp_len"] if c["clamp_len"] > 0 else None,
        )
        assert isinstance(mixer, TransformerXL)
        shared = layer + ".dec_attn" if c["untie_r"] else at.removesuffix(".")
        u, v = (w[f"{shared}.r_{part}_bias".removeprefix(".")] for part in "wr")
        r = w[f"{layer}.dec_attn.r_net.weight"]
        mixer.position.load_state_dict({"distance.weight": r, "u": u, "v": v})
        core = f"{layer}.pos_ff.CoreNet"
        feed_forward = _feed_forward("relu", w.linear(f"{core}.0"), w.linear(f"{core}.3"))
        norms = [w.layer_norm(f"{layer}.{part}.layer_norm", eps) for part in ("dec_attn", "pos_ff")]
        blocks.append(_block(mixer, norms[0], feed_forward, norms[1], norm_first=False))
    word = w.embedding(f"{at}word_emb.emb_layers.0")
    return Stack(Embedding(word, scale=dim**0.5), blocks, causal=True)


def _t5(request: Request) -> Stack | EncoderDecoder:
    """Pre-norm with RMSNorm; one table of distances for all layers of a side; scores are not scaled."""
    w, c = request.weights, request.config
    eps = c["layer_norm_epsilon"]
    embedding = Embedding(w.embedding("shared"))
    w.left -= {"encoder.embed_tokens.weight", "decoder.embed_tokens.weight"}
    table = _t5_table(request, "encoder")
    blocks = []
    for i in range(c["num_layers"]):
        layer = f"encoder.block.{i}.layer"
        mixer, norm = _t5_mixer(request, f"{layer}.0", "SelfAttention", table)
        feed_forward, last = _t5_feed_forward(request, f"{layer}.1")
        blocks.append(_block(mixer, norm, feed_forward, last, norm_first=True))
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


def _t5_table(request: Request, side: str) -> T5:
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


def _t5_mixer(request: Request, layer: str, name: str, table: T5 | None) -> tuple[Mixer, nn.Module]:
    w, c = request.weights, request.config
    projections = tuple(w.linear(f"{layer}.{name}.{part}") for part in "qkvo")
    options: dict[str, Any] = {} if table is None else {"position": "t5"}
    mixer = _mixer("softmax", c["d_model"], c["num_heads"], projections, scale=1.0, **options)  # type: ignore[arg-type]
    if table is not None:
        mixer.position = table
    return mixer, w.rms_norm(f"{layer}.layer_norm", c["layer_norm_epsilon"])


def _t5_feed_forward(request: Request, layer: str) -> tuple[nn.Module, nn.Module]:
    w, c = request.weights, request.config
    name, activation = f"{layer}.DenseReluDense", c["feed_forward_proj"].rpartition("-")[2]
    out = w.linear(f"{name}.wo")
    if f"{name}.wi.weight" in w:
        made = _feed_forward(activation, w.linear(f"{name}.wi"), out)
    else:
        activation = "gelu_new" if activation == "gelu" else activation
        made = _feed_forward(activation, w.linear(f"{name}.wi_1"), out, w.linear(f"{name}.wi_0"))
    return made, w.rms_norm(f"{layer}.layer_norm", c["layer_norm_epsilon"])


KINDS: dict[str, Callable[[Request], Stack | EncoderDecoder]] = {
    "bert": _bert,
    "roberta": _bert,
    "longformer": _bert,
    "big_bird": _bert,
    "fnet": _bert,
    "xlnet": _xlnet,
    "transfo-xl": _transfo_xl,
    "gpt2": _gpt2,
    "llama": _llama,
    "mistral": _llama,
    "qwen2": _llama,
    "t5": _t5,
}
"""model_type of a config -> how its checkpoint is read."""
