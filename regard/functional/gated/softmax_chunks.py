"""Softmax inside chunks and sums between them (MC-TFM++, Hua et al. 2022, arXiv 2202.10447), a chunk at a time.

    y_i = softmax_j(q_i k_j) v  +  a_i q_i M,    M = sum_j k_j v_j^T

q and k are turned by rope, q is scaled. The softmax runs over the keys that i sees in its chunk; M over all tokens, or,
where causal, over the chunks before. Turned queries and keys of a chunk live in cache, and are made again in the
backward. The softmax is that of the fused kernel, called by its own name because its backward is wanted here too.
"""

from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor
from torch.autograd.function import once_differentiable

from regard.functional.gated.mixed_chunk import add_product
from regard.functional.positions.rotary import cos_sin, turned

CHUNKS = range(64, 513)  # shorter ones are better many at a time, longer ones leave the cache

Place = tuple[int, slice, slice]  # an example, all heads, a chunk
fused = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu
fused_backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward


class Rule(NamedTuple):
    """What is not learned."""

    chunk_size: int
    causal: bool
    scale: float  # of q
    a: Float[Tensor, "B T"]
    lengths: list[int]  # tokens of each example; those behind them are not there


def softmax_chunks(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T K"],
    rule: Rule,
) -> Float[Tensor, "B H T K"]:
    """y; q and k are given as they were before they are turned and scaled."""
    return _SoftmaxChunks.apply(q, k, v, rule)


class _SoftmaxChunks(torch.autograd.Function):
    @staticmethod
    def forward(ctx, q, k, v, rule):
        chunks, keep = _Chunks(q, k, rule), any(ctx.needs_input_grad)
        y, kept = torch.empty_like(v), []
        chunks.clear(y)
        for walk in chunks.walks:
            M = chunks.no_sum()
            for place in () if rule.causal else walk:
                add_product(M, chunks.keys(place), v[place])
            for place in walk:
                q_t, k_t, v_t = chunks.queries(place), chunks.keys(place), v[place]
                near, logs = fused(q_t[None], k_t[None], v_t[None], 0.0, rule.causal, scale=1.0)
                far = torch.bmm(q_t * chunks.share(place), M.to(q_t.dtype))
                torch.add(near[0], far, out=y[place])
                kept += [near, logs, M.clone() if rule.causal else M] if keep else []
                if rule.causal:
                    add_product(M, k_t, v_t)
        if keep:
            ctx.rule = rule
            ctx.save_for_backward(q, k, v, *kept)
        return y

    @staticmethod
    @once_differentiable
    def backward(ctx, dy):
        q, k, v, *kept = ctx.saved_tensors
        chunks, causal = _Chunks(q, k, ctx.rule), ctx.rule.causal
        dq, dk, dv = torch.empty_like(q), torch.empty_like(k), torch.empty_like(v)
        chunks.clear(dq, dk, dv)
        for walk in reversed(chunks.walks):
            dM = chunks.no_sum()
            for place in () if causal else walk:
                add_product(dM, chunks.queries(place) * chunks.share(place), dy[place])
            for place in reversed(walk):
                M, logs, near = kept.pop(), kept.pop(), kept.pop()
                q_t, k_t, v_t, dy_t = chunks.queries(place), chunks.keys(place), v[place], dy[place]
                qkv = q_t[None], k_t[None], v_t[None]
                found = fused_backward(dy_t[None], *qkv, near, logs, 0.0, causal, scale=1.0)
                dq_t, dk_t, dv_t = (d[0] for d in found)
                a = chunks.share(place)
                behind = dM.to(v_t.dtype)
                dq_t.addcmul_(torch.bmm(dy_t, M.to(dy_t.dtype).mT), a)
                dk_t += torch.bmm(v_t, behind.mT)
                torch.add(dv_t, torch.bmm(k_t, behind), out=dv[place])
                if causal:
                    add_product(dM, q_t.mul_(a), dy_t)
                chunks.turn_back(dq_t.mul_(ctx.rule.scale), place, dq[place])
                chunks.turn_back(dk_t, place, dk[place])
        return dq, dk, dv, None


class _Chunks:
    """Where the chunks lie, and what is made of the inputs in each."""

    def __init__(self, q: Float[Tensor, "B H T K"], k: Float[Tensor, "B H T K"], rule: Rule):
        C, everyone = rule.chunk_size, slice(None)
        self.q, self.k, self.rule = q, k, rule
        self.walks = [
            [(example, everyone, slice(t, min(t + C, length))) for t in range(0, length, C)]
            for example, length in enumerate(rule.lengths)
        ]
        self.wide = torch.promote_types(q.dtype, torch.float32)
        self.cos, self.sin = cos_sin(q.shape[2], q.shape[3], q.device, self.wide)

    def clear(self, *outputs: Float[Tensor, "B H T K"]) -> None:
        for output in outputs:
            for example, length in enumerate(self.rule.lengths):
                output[example, :, length:] = 0

    def no_sum(self) -> Float[Tensor, "H K K"]:
        _, H, _, K = self.q.shape
        return self.q.new_zeros(H, K, K, dtype=self.wide)

    def queries(self, place: Place) -> Float[Tensor, "H t K"]:
        return self._turned(self.q, place).mul_(self.rule.scale).to(self.q.dtype)

    def keys(self, place: Place) -> Float[Tensor, "H t K"]:
        return self._turned(self.k, place).to(self.k.dtype)

    def _turned(self, x: Float[Tensor, "B H T K"], place: Place) -> Float[Tensor, "H t K"]:
        return turned(x[place].to(self.wide), self.cos[place[2]], self.sin[place[2]])

    def turn_back(self, x: Float[Tensor, "H t K"], place: Place, out: Float[Tensor, "H t K"]):
        angles = self.cos[place[2]], -self.sin[place[2]]
        if out.dtype == self.wide:
            turned(x, *angles, out=out)
        else:
            out.copy_(turned(x.to(self.wide), *angles))

    def share(self, place: Place) -> Float[Tensor, "t 1"]:
        return self.rule.a[place[0], place[2], None]
