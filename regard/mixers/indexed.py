"""Attention to the keys that a small index scores highest (DeepSeek sparse attention, arXiv 2512.02556; MSA, arXiv 2606.13392, by blocks).

    I_ij = sum_h w_ih relu(q^I_ih . k^I_j) / sqrt(d_I),   k^I = norm(W_k^I x),   w = W_w x / sqrt(index_heads)
    y_i = concat_h( softmax over the `top_k` allowed j of largest I_ij of q_i k_j / sqrt(K)  v_j ) W_out

One choice serves all heads. With `block_size` it is MSA: the index has one head for each head of keys, normed queries, no relu and no w; the score of a block is its largest, a
query's own block comes first, and `top_k` counts blocks. A choice has no gradient: the index learns by `auxiliary_loss`, the divergence of softmax(I) from the attention weights
summed over heads, over the chosen keys; it moves nothing else. DeepSeek trains it with `top_k` of at least T first (dense attention), then sparse. Cost: T^2 d_I index_heads for the
choice, T top_k (K + V) a head. A stream keeps keys, values and k^I. Unlike DeepSeek's, index queries are made of the token itself, and `position="rotary"` turns all index
channels. `num_kv_heads`: arXiv 2305.13245. With top_k >= T it is softmax attention.

Args:
    top_k: keys, or blocks of keys, that a query reads
    block_size: tokens of a block of keys; None: single keys are chosen
    index_heads: heads of the index; None: 4, or with blocks as many as keys have
    index_dim: channels of an index head, d_I; None: dim / num_heads
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OPEN, No, OptionError
from regard.core.documents import documents_of
from regard.core.request import check_request, compacted
from regard.functional.rows import Impl, first_places, in_chunks, scores, unrounded, visible_keys
from regard.functional.selected import bounds, divergence, selected_attention
from regard.mixers._base import ALL, Options
from regard.mixers._selected import SelectedMixer
from regard.mixers.moba import NO_MARKS
from regard.nn.norm import RMSNorm
from regard.nn.starts import Glorot, glorot


class Indexed(SelectedMixer):
    __doc__ = __doc__
    name = "indexed"
    family = "routed"
    paper = "DeepSeek-AI 2025, arXiv 2512.02556"
    capabilities = ALL.but(
        global_tokens=NO_MARKS,
        positions=frozenset({"absolute", "rotary"}),
        approximates="softmax",
        time="T^2 H K + T W H K",
        memory="T D + W H K",
        state="T G K",
    )
    variants = {
        "few": {"top_k": 3, "index_dim": 5},
        "grouped": {"top_k": 4, "index_heads": 2, "num_kv_heads": 1, "position": "rotary"},
        "blocks": {"top_k": 2, "block_size": 3},
    }
    limits = {"softmax": ({"top_k": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        num_kv_heads: int | None = None,
        top_k: int = 64,
        block_size: int | None = None,
        index_heads: int | None = None,
        index_dim: int | None = None,
        position: str | None = None,
        position_options: Options | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(
            dim,
            num_heads,
            num_kv_heads,
            impl,
            position,
            position_options,
            repeat=False,
            alike=block_size is None,
        )
        self.top_k, self.block_size = top_k, block_size
        heads, d = index_heads or 4, self.heads.head_dim if index_dim is None else index_dim
        if block_size is not None:
            if index_heads not in (None, self.heads.num_kv_heads):
                raise OptionError(
                    f"indexed: index_heads ({index_heads}) must be {self.heads.num_kv_heads} with block_size: one for each head of keys"
                )
            heads = self.heads.num_kv_heads
            self.declare(
                cross=No("a query begins with its own block, and has none in a context"),
                pairwise=No("a block is chosen for its best key, and read whole"),
            )
        if position is not None and d % 2:
            raise OptionError(f"indexed: index_dim ({d}) must be even: channels turn in pairs")
        norm: Any = partial(nn.LayerNorm, eps=1e-6) if block_size is None else RMSNorm
        self.index_dim = d
        self.index_query = Glorot(dim, heads * d, bias=False)
        self.index_key = Glorot(dim, d, bias=False)
        self.index_norm = norm(d)
        self.query_norm = None if block_size is None else norm(d)
        self.index_weight = Glorot(dim, heads, bias=False) if block_size is None else None
        glorot(self.index_query, self.index_key, self.index_weight)
        self.beside_heads = "its index"

    def _split(self, x, context, at=None):
        """q, index queries and their weights; keys of all heads and of the index side by side."""
        source = x if context is None else context
        q, k, v = self.heads.split(x, context, None if at is None else at[:, 0])
        x, source = (z.to(self._like.dtype) for z in (x, source))
        with unrounded(x):
            qi = self.index_query(x).unflatten(2, (-1, self.index_dim)).transpose(1, 2)
            qi = qi if self.query_norm is None else self.query_norm(qi)
            ki = self.index_norm(self.index_key(source))[:, None]
            if self.position is not None:
                at = first_places(x) if at is None else at.clamp_min(0)
                qi, ki = self.position.rotate(qi, at), self.position.rotate(ki, at)
            w = None if self.index_weight is None else self.index_weight(x) * qi.shape[1] ** -0.5
        return (q, qi, w), torch.cat([k.transpose(1, 2).flatten(2)[:, None], ki], -1), v

    def _index(self, q, k, mask):
        (_, qi, w), ki, C = q, k[..., -self.index_dim :], self.block_size or 1
        T, S = qi.shape[2], ki.shape[2]
        last, own = bounds(mask, qi, ki)
        place = torch.arange(S, device=k.device)

        def index(rows):
            cols = visible_keys(mask, T, S, rows)
            with unrounded(qi):
                found = scores(qi[:, :, rows], ki[:, :, cols])
            allowed = place[cols] <= last[:, None, rows, None]
            if self.block_size is None:
                found = (w[:, rows].mT[..., None] * found.relu()).sum(1, keepdim=True)
                pairs = mask.pairwise
                return found, allowed if pairs is None else allowed & pairs[:, :, rows, cols], None
            found = in_chunks(found.mT, C)
            place_of = torch.arange(found.shape[2] * C, device=k.device).view(-1, C, 1)
            found = found.masked_fill(place_of > last[:, None, None, None, rows], -torch.inf)
            first = place_of[:, 0, 0]
            mine = first // C == own[:, None, rows, None] // C
            return found.amax(3).mT, first <= last[:, None, rows, None], mine

        return index

    def _keys(self, k: Float[Tensor, "B 1 S _"]) -> Float[Tensor, "B G S K"]:
        return k[:, 0, :, : -self.index_dim].unflatten(2, (-1, self.heads.key_dim)).transpose(1, 2)

    def _select(self, q, k, v, mask):
        keys, index = self._keys(k), self._index(q, k, mask)
        return selected_attention(q[0], keys, v, index, **self._how(q[0], keys, mask))

    def auxiliary_loss(self, x, *, context=None, mask=OPEN):
        """KL of softmax(I) from the attention weights, a mean over queries; see above."""
        check_request(self, x, context, mask)
        pack = documents_of(self, mask)
        parts = [(x, context, mask)] if pack is None else [(z, None, m) for z, m in pack.rows(x)]
        total = count = x.new_zeros(())
        for part in parts:
            request = compacted(*part, padding=True)
            context, mask = request.context, request.mask
            q, k, _ = self._split(request.x.detach(), None if context is None else context.detach())
            keys, index = self._keys(k), self._index(q, k, mask)
            found = divergence(q[0], keys, index, **self._how(q[0], keys, mask))[:, 0, :, 0]
            some = torch.ones_like(found) if request.answered is None else request.answered
            total, count = total + (found * some).sum(), count + some.sum()
        return total / count.clamp_min(1)
