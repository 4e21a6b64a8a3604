"""Transformer-XL: attention by content and distance, with a memory of the segment before (Dai et al. 2019, arXiv 1901.02860).

    h~ = [SG(memory) ; h],   q = h W_q,   k = h~ W_k,   v = h~ W_v
    A_ij = (q_i + u) . k_j + (q_i + v_b) . W_kR R_(p_i - j),   y = softmax(A / sqrt(K)) v W_out

R_d = [sin(d w) | cos(d w)] has width D; p_i is the query's place among the keys, the last query at the last key. The
memory is the last `mem_len` tokens that this layer was given. `extend(segment, state)` equals causal `forward` within
one call; over several calls no gradient flows back into the memory, and L layers see L mem_len tokens back.

Cost: T S (2 K + V) per head, D^2 parameters more. `num_kv_heads`: arXiv 2305.13245. `clamp_len` replaces |d| by min(|d|, clamp_len). `same_length`: every
query sees mem_len keys at most, itself included, in `forward` too. u and v_b belong to this layer (the paper shares
them: `layer.position.u = first.position.u`, and so for v). The memory of a row is forgotten when its `length` is set to 0.

XLNet (arXiv 1906.08237): both streams are this mixer, `mixer(g, context=h, mask=Mask(pairwise=...))`, h with its memory
in front; distances then have both signs. With `segments=True` its segment term is there too, for `relate`, where every
token has a segment:  A_ij + (q_i + b) . s_ij,  s_ij one vector for pairs of one segment and another for pairs of two.
`forward` and `extend` know one segment, where that term changes no weight. Its reversed distances are left out.

Args:
    mem_len: tokens of earlier calls that each layer keeps
    clamp_len: tokens: larger distances count as this one; None: no limit
    same_length: True: every query sees mem_len keys at most
    segments: True: a term tells the two segments of a pair apart
    dropout: share of values that is set to zero in training
"""

from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import (
    OPEN,
    Context,
    Mask,
    No,
    Rate,
    ShapeError,
    Streamed,
    Tokens,
    UnsupportedError,
    as_state,
    bounded,
    check_request,
    compaction,
    existing,
    permute,
)
from regard.functional.cache import Lengths, advance, last_rows
from regard.functional.relative import Segments, Terms, distances, last_aligned, relative_attention
from regard.functional.rows import Impl, upto
from regard.mixers._base import ALL, HeadsMixer
from regard.positions.relative import RelativePosition, SegmentTerm


@as_state
class State(Streamed):
    memory: Float[Tensor, "B M D"]  # newest last; min(length, M) rows of it are tokens
    length: Lengths


class TransformerXL(HeadsMixer):
    __doc__ = __doc__
    name = "transformer_xl"
    family = "relative"
    paper = "Dai et al. 2019, arXiv 1901.02860"
    capabilities = ALL.but(
        streaming="segment", positions=frozenset({"transformer_xl"}), state="M D"
    )
    variants = {
        "clamped": {"clamp_len": 4, "num_kv_heads": 1},
        "same_length": {"mem_len": 4, "same_length": True},
    }

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        mem_len: int = 128,
        clamp_len: int | None = None,
        same_length: bool = False,
        segments: bool = False,
        dropout: Rate = 0.0,
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        super().__init__(dim, num_heads, num_kv_heads, impl)
        self.mem_len = mem_len
        self.dropout = dropout
        self.position = RelativePosition(dim, num_heads=num_heads, clamp_len=clamp_len)
        self.segment = SegmentTerm(num_heads, dim // num_heads) if segments else None
        self.window = mem_len if same_length else None
        if same_length:
            self.declare(
                bidirectional=No("same_length counts the keys up to the query, and none after"),
                global_tokens=No("same_length gives every query the same number of keys"),
                time="T M H K",
            )

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        if context is not None:
            k, v, mask = last_aligned(k, v, mask)
        return self.heads.merge(relative_attention(q, k, v, **self._how(q, k, mask)))

    def relate(
        self,
        x: Tokens,
        query_segment: Int[Tensor, "B T"],
        key_segment: Int[Tensor, "B S"],
        *,
        context: Context = None,
        mask: Mask = OPEN,
    ) -> Tokens:
        """The same as `forward`, for tokens of several segments. Padding is hidden by `mask.pairwise`, and not by `mask.valid`.

        Raises UnsupportedError for a mixer without segments or for `mask.valid`, ShapeError for what does not fit.
        """
        check_request(self, x, context, mask)
        source = x if context is None else context
        if self.segment is None:
            raise UnsupportedError(
                f"{self.name} does not support relate: it was built without a segment term. Pass segments=True."
            )
        if mask.valid is not None:
            raise UnsupportedError(
                f"{self.name} does not support mask.valid in relate: memory and tokens are one row there. "
                "Hide what is absent by mask.pairwise."
            )
        for name, ids, tokens in [("query", query_segment, x), ("key", key_segment, source)]:
            if ids.shape != tokens.shape[:2] or ids.is_floating_point():
                raise ShapeError(
                    f"{self.name}: {name}_segment must be integers {list(tokens.shape[:2])}, "
                    f"got {ids.dtype} {list(ids.shape)}"
                )
        term = Segments(query_segment, key_segment, self.segment.s, self.segment.b)
        q, k, v = self.heads.split(x, context)
        return self.heads.merge(relative_attention(q, k, v, **self._how(q, k, mask, term)))

    def _how(
        self, q: Tensor, k: Tensor, mask: Mask, segments: Segments | None = None
    ) -> dict[str, Any]:
        """The terms of distances and segments, and what else weighs queries and keys."""
        distance = distances(q.shape[2], k.shape[2], mask.causal, q.device)
        of = self.position
        dropout = self.dropout if self.training and self.heads.of is None else 0.0
        terms = Terms(of.keys(distance, of.u.dtype), of.u, of.v, segments)
        how = {"terms": terms, "mask": mask, "window": self.window}
        return how | {"dropout": dropout, "impl": self.impl}

    def _keep(self, context, valid):
        raise UnsupportedError(
            f"{self.name} does not support streaming over a context: distances are counted from its end, "
            "where the last query stands. Call it with all queries at once."
        )

    def _start(self, length, max_len):
        return State(self._like.new_zeros(len(length), self.mem_len, self.dim), length)

    def _step(self, x, state, valid, donate):
        source = torch.cat([state.memory, x], 1)
        held = upto(self.mem_len, x) >= self.mem_len - state.length[:, None]
        mask = Mask(causal=True, valid=torch.cat([held, existing(x[..., 0], valid)], 1))
        q, k, v = self.heads.split(x, source)
        mixed = relative_attention(q, k, v, **self._how(q, k, mask))
        length = advance(state.length, valid, x.shape[1])
        return mixed, State(last_rows(state.memory, x, length - state.length).detach(), length)

    def extend_normed(self, x, norm, state, *, valid=None, documents=None, donate=False):
        """The memory keeps x and is normalised when it is read, so that norm gets its gradient and no memory is stale."""
        self._check_tokens("x", x)
        given = state
        if isinstance(state, State):
            given = bounded(replace(state, memory=norm(state.memory)), state.most)
        y, after = self.extend(norm(x), given, valid=valid, documents=documents, donate=donate)
        rows = x if valid is None else permute(x, compaction(valid).source)
        added = advance(state.length, valid, x.shape[1]) - state.length
        memory = last_rows(state.memory, rows, added).detach()
        return y, bounded(replace(after, memory=memory), after.most)
