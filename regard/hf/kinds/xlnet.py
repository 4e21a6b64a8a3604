"""XLNet."""

from collections.abc import Sequence
from typing import cast

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from regard.core import Mask, ShapeError, UnsupportedError
from regard.core.options import checked
from regard.hf.stack import Stack, TokenEmbedding
from regard.hf.weights import LoadRequest
from regard.mixers.transformer_xl import TransformerXL
from regard.models.block import Block
from regard.models.two_streams import mixed

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

    def forward(self, tokens, *, valid=None, types=None, global_tokens=None, documents=None):
        given = {"global_tokens": global_tokens, "documents": documents}
        if types is None:
            return super().forward(tokens, valid=valid, **given)
        for name, value in given.items():
            if value is not None:
                raise UnsupportedError(f"xlnet does not support {name} beside types")
        return self.extend(tokens, valid=valid, types=types)[0]

    @checked
    def extend(  # type: ignore[override]
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
        B, T = tokens.shape
        sees = torch.ones(B, T, T, dtype=torch.bool, device=tokens.device)
        (x,), after = self._streams(tokens, sees, memory, valid, types)
        return x, after

    @checked
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
        (_, g), after = self._streams(tokens, sees, memory, valid, types, self.query)
        return g, after

    def _streams(
        self,
        tokens: Tensor,
        sees: Bool[Tensor, "B T T"],
        memory: Sequence[Tensor] | None,
        valid: Tensor | None,
        types: Tensor | None,
        *queries: Float[Tensor, "D"],
    ) -> tuple[list[Float[Tensor, "B T D"]], Memory]:
        """The content stream, and those that begin with these queries; all take keys and values from the content as it enters a layer."""
        x = self.embedding(tokens, None, None)
        B, T, D = x.shape
        if memory is None:
            memory = [x.new_zeros(B, 0, D)] * len(self.blocks)
        M = memory[0].shape[1] if len(memory) else 0
        if [tuple(z.shape) for z in memory] != [(B, M, D)] * len(self.blocks):
            raise ShapeError(
                f"xlnet: a memory must hold {len(self.blocks)} tensors [{B}, M, {D}], one for each layer, as extend gives"
            )
        if valid is not None:
            sees = sees & valid[:, None]
        oneself = torch.eye(T, dtype=torch.bool, device=x.device)
        masks = [  # all see the memory
            Mask(pairwise=F.pad(pairs, (M, 0), value=True)[:, None])
            for pairs in (sees | oneself, sees)
        ]
        streams, after = [x, *(query.expand_as(x) for query in queries)], []
        for block, old in zip(self.layers, memory, strict=True):
            content = streams[0]
            seen = torch.cat([old, content], dim=1)
            kept = torch.cat([old, content[:, : self.reuse_len or T]], dim=1)
            after.append(kept[:, -(self.mem_len or kept.shape[1]) :].detach())
            streams = [
                block.after_mixer(z, mixed(cast(TransformerXL, block.mixer), z, seen, mask, types))
                for z, mask in zip(streams, masks, strict=False)
            ]
        return streams, tuple(after)


SHAPES = {
    "word_embedding.weight": "vocab_size d_model",
    "layer.0.rel_attn.q": "d_model n_head d_head",
    "layer.0.ff.layer_1.weight": "d_inner",
}


def xlnet(request: LoadRequest) -> Stack:
    """Both streams, with memory and segments; fine-tuning uses the content stream alone."""
    w, c = request.weights, request.config
    request.require("attn_type", "bi")
    request.require("bi_data", False)
    at, norm = w.prefix("transformer."), w.norms(nn.LayerNorm, c["layer_norm_eps"])
    request.agree(at, SHAPES)
    clamp_len = c["clamp_len"] if c.get("clamp_len", -1) > 0 else None
    blocks = []
    for i in range(request.depth("n_layer")):
        layer = f"{at}layer.{i}"
        q, k, v, o, r = (w[f"{layer}.rel_attn.{part}"].flatten(1) for part in "qkvor")
        mixer = TransformerXL(
            c["d_model"], num_heads=c["n_head"], clamp_len=clamp_len, segments=True
        )
        mixer.heads.load_state_dict(
            {"query.weight": q.T, "key.weight": k.T, "value.weight": v.T, "out.weight": o}
        )
        u, v_bias = (w[f"{layer}.rel_attn.r_{part}_bias"] for part in "wr")
        mixer.position.load_state_dict({"distance.weight": r.T, "u": u, "v": v_bias})
        assert mixer.segment is not None
        s = w[f"{layer}.rel_attn.seg_embed"], w[f"{layer}.rel_attn.r_s_bias"]
        mixer.segment.load_state_dict({"s": s[0], "b": s[1]})
        names = "rel_attn.layer_norm", "ff.layer_norm", "ff.layer_1", "ff.layer_2"
        blocks.append(
            request.block(
                mixer.to(q.dtype), norm, layer, names, activation="ff_activation", norm_first=False
            )
        )
    word, head = w.embedding(f"{at}word_embedding"), None
    if "lm_loss.bias" in w:
        tied = c.get("tie_word_embeddings", True)
        head = request.head("lm_loss", word, w["lm_loss.bias"], tied=tied)
    return XLNetStack(
        TokenEmbedding(word),
        blocks,
        head=head,
        query=w[f"{at}mask_emb"].flatten() if f"{at}mask_emb" in w else None,
        mem_len=c.get("mem_len"),
        reuse_len=c.get("reuse_len"),
    )
