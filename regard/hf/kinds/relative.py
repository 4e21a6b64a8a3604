"""Transformer-XL and XLNet."""

from collections.abc import Sequence
from typing import NamedTuple, cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mask, ShapeError, UnsupportedError
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import (
    LoadRequest,
    linear,
    make_block,
    make_mixer,
)
from regard.mixers.transformer_xl import TransformerXL
from regard.models.block import Block

Memory = tuple[Float[Tensor, "B M D"], ...]
"""Earlier inputs of each layer, newest token last."""


class XLNetStack(Stack):
    """XLNet's content stream: `forward` of one text or of a pair (`types`), `extend` with the memory of those before.

    mem_len: tokens that a memory keeps, all of them where it is None; of a call, its first `reuse_len` enter it. query [D]: where the
    query stream of `predict` begins, None where the checkpoint has none.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        blocks: list[Block],
        *,
        head: nn.Linear | None,
        query: Float[Tensor, "D"] | None,
        mem_len: int | None,
        reuse_len: int | None,
    ):
        super().__init__(embedding, blocks, head=head)
        self.query = None if query is None else nn.Parameter(query)
        self.mem_len, self.reuse_len = mem_len, reuse_len

    def forward(self, tokens, *, valid=None, types=None, global_tokens=None):
        if types is None:
            return super().forward(tokens, valid=valid, global_tokens=global_tokens)
        return self.extend(tokens, valid=valid, types=types)[0]

    def extend(
        self,
        tokens: Int[Tensor, "B T"],
        memory: Sequence[Float[Tensor, "B M D"]] | None = None,
        *,
        valid: Bool[Tensor, "B T"] | None = None,
        types: Int[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Memory]:
        """Hidden states of the next tokens, which also see the memory, and the memory after them; None is an empty one.

        No gradient flows into a memory, and its tokens are of type 0. Distances count columns, padding among them.
        """
        x, memory = self._begin(tokens, memory)
        T, M = tokens.shape[1], memory[0].shape[1]
        mask = Mask()
        if valid is not None:
            oneself = torch.eye(T, dtype=torch.bool, device=x.device)
            mask = _behind(M, valid[:, None] | oneself)
        x, _, after = self._read(x, None, memory, (mask, mask), types)
        return x, after

    def predict(
        self,
        tokens: Int[Tensor, "B T"],
        sees: Bool[Tensor, "B T T"],
        memory: Sequence[Float[Tensor, "B M D"]] | None = None,
        *,
        valid: Bool[Tensor, "B T"] | None = None,
        types: Int[Tensor, "B T"] | None = None,
    ) -> tuple[Float[Tensor, "B T D"], Memory]:
        """The query stream: hidden states that predict the token at each place t from those s with sees[t, s], and from the memory.

        The content stream beside it sees the same tokens and itself. A row that sees nothing attends to nothing. `model.head`
        gives logits. Raises UnsupportedError for a checkpoint without a query stream, ShapeError for what does not fit.
        """
        if self.query is None:
            raise UnsupportedError(
                "predict does not support this checkpoint: it has no mask_emb, with which a query stream begins"
            )
        x, memory = self._begin(tokens, memory)
        B, T, M = *tokens.shape, memory[0].shape[1]
        if tuple(sees.shape) != (B, T, T) or sees.dtype != torch.bool:
            raise ShapeError(
                f"xlnet: sees must be a boolean tensor [{B}, {T}, {T}], got {sees.dtype} {list(sees.shape)}"
            )
        if valid is not None:
            sees = sees & valid[:, None]
        oneself = torch.eye(T, dtype=torch.bool, device=x.device)
        masks = _behind(M, sees | oneself), _behind(M, sees)
        _, g, after = self._read(x, self.query.expand_as(x), memory, masks, types)
        assert g is not None
        return g, after

    def _begin(
        self, tokens: Tensor, memory: Sequence[Tensor] | None
    ) -> tuple[Float[Tensor, "B T D"], Sequence[Float[Tensor, "B M D"]]]:
        x = self.embedding(tokens, None, None)
        B, _, D = x.shape
        if memory is None:
            memory = [x.new_zeros(B, 0, D)] * len(self.blocks)
        M = memory[0].shape[1] if len(memory) else 0
        if [tuple(z.shape) for z in memory] != [(B, M, D)] * len(self.blocks):
            raise ShapeError(
                f"xlnet: a memory must hold {len(self.blocks)} tensors [{B}, M, {D}], one for each layer, as extend gives"
            )
        return x, memory

    def _read(
        self,
        x: Float[Tensor, "B T D"],
        g: Float[Tensor, "B T D"] | None,
        memory: Sequence[Float[Tensor, "B M D"]],
        masks: tuple[Mask, Mask],
        types: Tensor | None,
    ) -> tuple[Float[Tensor, "B T D"], Float[Tensor, "B T D"] | None, Memory]:
        """Both streams take keys and values from the content stream as it enters a layer."""
        after = []
        for block, old in zip(self.layers, memory, strict=True):
            seen = torch.cat([old, x], dim=1)
            kept = torch.cat([old, x[:, : self.reuse_len or x.shape[1]]], dim=1)
            after.append(kept[:, -(self.mem_len or kept.shape[1]) :].detach())
            content, query = masks
            if g is not None:
                g = block.after_mixer(g, _mixed(block, g, seen, query, types))
            x = block.after_mixer(x, _mixed(block, x, seen, content, types))
        return x, g, tuple(after)


def _mixed(block: Block, x: Tensor, seen: Tensor, mask: Mask, types: Tensor | None) -> Tensor:
    mixer = cast(TransformerXL, block.mixer)
    if types is None:
        return mixer(x, context=seen, mask=mask)
    of_keys = F.pad(types, (seen.shape[1] - types.shape[1], 0))
    return mixer.relate(x, types, of_keys, context=seen, mask=mask)


def _behind(M: int, sees: Bool[Tensor, "B T T"]) -> Mask:
    """All see the memory."""
    return Mask(pairwise=F.pad(sees, (M, 0), value=True)[:, None])


XLNET_SHAPES = {
    "word_embedding.weight": "vocab_size d_model",
    "layer.0.rel_attn.q": "d_model n_head d_head",
    "layer.0.ff.layer_1.weight": "d_inner",
}


def xlnet(request: LoadRequest) -> Stack:
    """Both streams, with memory and segments; fine-tuning uses the content stream alone."""
    w, c = request.weights, request.config
    request.require("attn_type", "bi")
    request.require("bi_data", False)
    at, dim, eps = w.prefix("transformer."), c["d_model"], c["layer_norm_eps"]
    request.agree(at, XLNET_SHAPES)
    blocks = []
    for i in range(c["n_layer"]):
        layer = f"{at}layer.{i}"
        q, k, v, o, r = (w[f"{layer}.rel_attn.{part}"].flatten(1) for part in "qkvor")
        clamp_len = c["clamp_len"] if c.get("clamp_len", -1) > 0 else None
        mixer = TransformerXL(dim, num_heads=c["n_head"], clamp_len=clamp_len, segments=True)
        mixer.heads.load_state_dict(
            {"query.weight": q.T, "key.weight": k.T, "value.weight": v.T, "out.weight": o}
        )
        u, v_bias = (w[f"{layer}.rel_attn.r_{part}_bias"] for part in "wr")
        mixer.position.load_state_dict({"distance.weight": r.T, "u": u, "v": v_bias})
        assert mixer.segment is not None
        s = w[f"{layer}.rel_attn.seg_embed"], w[f"{layer}.rel_attn.r_s_bias"]
        mixer.segment.load_state_dict({"s": s[0], "b": s[1]})
        feed_forward = w.feed_forward(
            request.activation("ff_activation"), f"{layer}.ff.layer_1", f"{layer}.ff.layer_2"
        )
        norms = [w.layer_norm(f"{layer}.{part}.layer_norm", eps) for part in ("rel_attn", "ff")]
        blocks.append(
            make_block(mixer.to(q.dtype), norms[0], feed_forward, norms[1], norm_first=False)
        )
    word = w.embedding(f"{at}word_embedding")
    query = w[f"{at}mask_emb"].flatten() if f"{at}mask_emb" in w else None
    return XLNetStack(
        TokenEmbedding(word),
        blocks,
        head=_head(request, "lm_loss", word),
        query=query,
        mem_len=c.get("mem_len"),
        reuse_len=c.get("reuse_len"),
    )


def _head(request: LoadRequest, name: str, word: nn.Embedding) -> nn.Linear | None:
    """The head of this name, if there is one."""
    if f"{name}.bias" not in request.weights:
        return None
    tied = request.config.get("tie_word_embeddings", True)
    return request.head(name, word, request.weights[f"{name}.bias"], tied=tied)


class RecurrentStack(Stack):
    """Transformer-XL: `forward` from an empty memory, `extend` with that of the tokens before."""

    def initial_state(self, batch_size: int) -> tuple[NamedTuple, ...]:
        """Empty memories, one for each layer."""
        return tuple(mixer.initial_state(batch_size) for mixer in self.mixers)

    def extend(
        self,
        tokens: Int[Tensor, "B N"],
        state: tuple[NamedTuple, ...],
        *,
        valid: Bool[Tensor, "B N"] | None = None,
    ) -> tuple[Float[Tensor, "B N D"], tuple[NamedTuple, ...]]:
        """Hidden states of the next tokens, which also see mem_len tokens before them in every layer, and the state after them."""
        x, after = self.embedding(tokens, valid, None), []
        for block, old in zip(self.layers, state, strict=True):
            x, new = block.extend(x, old, valid=valid)
            after.append(new)
        return x, tuple(after)


def transfo_xl(request: LoadRequest) -> Stack:
    """The layout that Transformers had to 4.35, that of the paper's code, with its memory and its plain softmax.

    An adaptive softmax is not read: the paper's code numbers its clusters from the last, Transformers from the first, and
    no field of a checkpoint says which.
    """
    w, c = request.weights, request.config
    request.require("attn_type", 0)
    request.require("pre_lnorm", False)
    request.require("div_val", 1)
    request.require("d_embed", c["d_model"])
    request.require("d_head", c["d_model"] // c["n_head"])
    at, dim, eps = w.prefix("transformer."), c["d_model"], c.get("layer_norm_epsilon", 1e-5)
    shapes = {"word_emb.emb_layers.0.weight": "vocab_size d_model", "layers.0.pos_ff.CoreNet.0.weight": "d_inner"}  # fmt: skip
    request.agree(at, shapes)
    blocks = []
    for i in range(c["n_layer"]):
        layer = f"{at}layers.{i}"
        joint = w[f"{layer}.dec_attn.qkv_net.weight"].split(dim)
        query, key, value = map(linear, joint)
        mixer = make_mixer(
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
        feed_forward = w.feed_forward("relu", f"{core}.0", f"{core}.3")
        norms = [w.layer_norm(f"{layer}.{part}.layer_norm", eps) for part in ("dec_attn", "pos_ff")]
        blocks.append(make_block(mixer, norms[0], feed_forward, norms[1], norm_first=False))
    word = w.embedding(f"{at}word_emb.emb_layers.0")
    head = None if "crit.cluster_weight" in w else _head(request, "crit.out_layers.0", word)
    return RecurrentStack(TokenEmbedding(word, scale=dim**0.5), blocks, head=head, causal=True)
