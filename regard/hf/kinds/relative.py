"""Transformer-XL and XLNet."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Mask, ShapeError
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import LoadRequest, linear, make_block, make_feed_forward, make_mixer
from regard.mixers.transformer_xl import TransformerXL
from regard.models.block import Block

Memory = tuple[Float[Tensor, "B M D"], ...]
"""What entered each layer before, newest token last."""


class XLNetStack(Stack):
    """XLNet's content stream: `forward` of one text or of a pair (`types`), `extend` with the memory of those before.

    mem_len: tokens that a memory keeps, all of them where it is None; of a call, its first `reuse_len` enter it.
    """

    def __init__(
        self,
        embedding: TokenEmbedding,
        blocks: list[Block],
        *,
        mem_len: int | None,
        reuse_len: int | None,
    ):
        super().__init__(embedding, blocks)
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
        x, after = self.embedding(tokens, None, None), []
        B, T, D = x.shape
        if memory is None:
            memory = [x.new_zeros(B, 0, D)] * len(self.blocks)
        M = memory[0].shape[1] if len(memory) else 0
        if [tuple(z.shape) for z in memory] != [(B, M, D)] * len(self.blocks):
            raise ShapeError(
                f"xlnet: a memory must hold {len(self.blocks)} tensors [{B}, M, {D}], one for each layer, as extend gives"
            )
        mask = None
        if valid is not None:
            oneself = torch.eye(T, dtype=torch.bool, device=x.device)
            mask = Mask(pairwise=F.pad(valid[:, None] | oneself, (M, 0), value=True)[:, None])
        for module, old in zip(self.blocks, memory, strict=True):
            block = cast(Block, module)
            mixer = cast(TransformerXL, block.mixer)
            seen = torch.cat([old, x], dim=1)
            kept = torch.cat([old, x[:, : self.reuse_len or T]], dim=1)
            after.append(kept[:, -(self.mem_len or kept.shape[1]) :].detach())
            request = Mask() if mask is None else mask
            if types is None:
                mixed = mixer(x, context=seen, mask=request)
            else:
                of_keys = F.pad(types, (M, 0))
                mixed = mixer.relate(x, types, of_keys, context=seen, mask=request)
            x = block.after_mixer(x, mixed)
        return x, tuple(after)


def xlnet(request: LoadRequest) -> Stack:
    """The content stream, with memory and segments: what fine-tuning uses. The query stream is left out."""
    w, c = request.weights, request.config
    request.require("attn_type", "bi")
    request.require("bi_data", False)
    at, dim, eps = w.prefix("transformer."), c["d_model"], c["layer_norm_eps"]
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
        feed_forward = make_feed_forward(
            c["ff_activation"], w.linear(f"{layer}.ff.layer_1"), w.linear(f"{layer}.ff.layer_2")
        )
        norms = [w.layer_norm(f"{layer}.{part}.layer_norm", eps) for part in ("rel_attn", "ff")]
        blocks.append(
            make_block(mixer.to(q.dtype), norms[0], feed_forward, norms[1], norm_first=False)
        )
    embedding = TokenEmbedding(w.embedding(f"{at}word_embedding"))
    return XLNetStack(embedding, blocks, mem_len=c.get("mem_len"), reuse_len=c.get("reuse_len"))


def transfo_xl(request: LoadRequest) -> Stack:
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
        feed_forward = make_feed_forward("relu", w.linear(f"{core}.0"), w.linear(f"{core}.3"))
        norms = [w.layer_norm(f"{layer}.{part}.layer_norm", eps) for part in ("dec_attn", "pos_ff")]
        blocks.append(make_block(mixer, norms[0], feed_forward, norms[1], norm_first=False))
    word = w.embedding(f"{at}word_emb.emb_layers.0")
    return Stack(TokenEmbedding(word, scale=dim**0.5), blocks, causal=True)
