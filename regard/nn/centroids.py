"""Centroids: k-means by moving averages, one update for each optimiser step.

    sums <- lambda sums + (1 - lambda) sum of the tokens of a cluster,   counts alike,   centroid = sums / counts

counts are smoothed, (c + e) / (n + N e) n with e = 1e-5 and n their total; they begin at 1 with sums = centroids, and a
step without tokens changes nothing. What a forward saw is counted when its gradient passes, so that it is counted once
however often activations are recomputed, and never in evaluation. `regard.nn.after_step` adds up the counts of processes.
"""

from typing import Any, NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor, nn

from regard.core import (
    Keys,
    Marks,
    Queries,
    Scalar,
    TensorMap,
    Tokens,
    UnsupportedError,
    clear,
    existing,
)
from regard.functional.kmeans import nearest, standardised
from regard.functional.rows import plain_alone, upto, wide_type
from regard.nn.starts import normal

EPS = 1e-5


class Counts(NamedTuple):
    """Sums of tokens and their number, each at its nearest centroid."""

    sums: Float[Tensor, "H N K"]
    counts: Float[Tensor, "H N"]

    def add(
        self,
        q: Queries,
        k: Keys,
        centroids: Float[Tensor, "H N K"],
        valid: Marks | None,
        *,
        cross: bool,
    ) -> None:
        """Counts queries and keys, once where they are one tensor; no absent ones, and no queries of no keys."""
        keyed = valid.any(1, keepdim=True) if cross and valid is not None else valid
        for z, here in ((q, keyed), (k, valid))[: 1 if k is q else 2]:
            one = nn.functional.one_hot(nearest(z, centroids), centroids.shape[1])
            one = one.type_as(self.sums)
            one = one if here is None else one * here[:, None, :, None]
            self.sums.add_((one.mT @ z.type_as(one)).sum(0))
            self.counts.add_(one.sum((0, 2)))


class Centroids(nn.Module):
    """[H N K] in buffers, at the start on the sphere of radius sqrt(K)."""

    value: Tensor
    sums: Tensor
    counts: Tensor
    # Since the last update; as a buffer it would be saved, and overwritten by the first process's.
    staged: Counts | None

    def __init__(
        self, num_heads: int, num_clusters: int, head_dim: int, *, decay: float, seed: int | None
    ):
        super().__init__()
        shape = num_heads, num_clusters, head_dim
        self.decay = decay
        self.seed = seed
        self.register_buffer("value", torch.empty(shape))
        wide = wide_type(self.value)
        self.register_buffer("sums", torch.empty(shape, dtype=wide))
        self.register_buffer("counts", torch.empty(shape[:2], dtype=wide))
        self.reset_parameters()

    @torch.no_grad()
    def reset_parameters(self) -> None:
        start = normal(*self.value.shape, seed=self.seed)
        start = nn.functional.layer_norm(start, start.shape[-1:])
        self.value.copy_(start)
        self.sums.copy_(start)
        self.counts.fill_(1)
        self.staged = None

    def counters(self, who: str) -> Counts:
        """Raises UnsupportedError under torch.func, and while a program is exported."""
        if plain_alone():
            raise UnsupportedError(
                f"{who} in training counts tokens for its centroids, which torch.func and torch.export cannot carry. "
                "Call eval() first: outputs and gradients are the same, and centroids stay as they are"
            )
        return self._zero()

    def _zero(self) -> Counts:
        return Counts(torch.zeros_like(self.sums), torch.zeros_like(self.counts))

    def since_update(self) -> Counts:
        self.staged = self.staged or self._zero()
        return self.staged

    def count(self, y: Tensor, counts: Counts) -> Tensor:
        """y itself; once its gradient has passed, the counts are part of the next update."""
        return _Staged.apply(y, *counts, *self.since_update())

    def distance(
        self, project: TensorMap, tokens: Tokens, valid: Bool[Tensor, "B T"] | None
    ) -> Scalar:
        """Mean |z - mu|^2 of the projected tokens, standardised, to their nearest centroids."""
        valid = existing(tokens[..., 0], valid)
        z = standardised(project(clear(tokens, valid)))
        head = upto(z.shape[1], z)[:, None]
        squares = (z - self.value[head, nearest(z, self.value)]).square().mean(-1)
        return (squares * valid[:, None]).sum() / (valid.sum().clamp_min(1) * z.shape[1])

    def _apply(self, fn: TensorMap, recurse: bool = True):
        """Averages stay in float32 at least: a share of 0.001 is lost in 16 bits."""
        before = self.sums, self.counts
        super()._apply(fn, recurse)
        self.sums, self.counts = (_at_least_float32(fn, old) for old in before)
        self.staged = self.staged and Counts(*(_at_least_float32(fn, old) for old in self.staged))
        return self

    def _load_from_state_dict(self, *args: Any) -> None:
        """What was counted belongs to other weights, or is the garbage of `to_empty`."""
        super()._load_from_state_dict(*args)
        self.staged = None

    @torch.no_grad()
    def update(self) -> None:
        """Moves the centroids to what was counted since the last update. Communicates nothing."""
        sums, counts = self.since_update()
        any_token = counts.sum() > 0
        keep = 1 - (1 - self.decay) * any_token.type_as(counts)
        self.sums.mul_(keep).add_(sums * (1 - keep))
        self.counts.mul_(keep).add_(counts * (1 - keep))
        n = self.counts.sum(-1, keepdim=True)
        smooth = (self.counts + EPS) / (n + self.counts.shape[-1] * EPS) * n
        moved = (self.sums / smooth[..., None]).type_as(self.value)
        self.value.copy_(torch.where(any_token, moved, self.value))
        self.staged = None


def _at_least_float32(fn: TensorMap, old: Tensor) -> Tensor:
    new = fn(old)
    wide = wide_type(new)
    return new if new.dtype == wide else old.to(new.device, wide)


class _Staged(torch.autograd.Function):
    @staticmethod
    def forward(ctx, y, sums, counts, staged_sums, staged_counts):
        ctx.save_for_backward(sums, counts)
        ctx.staged = staged_sums, staged_counts
        return y.view_as(y)

    @staticmethod
    def backward(ctx, dy):
        """A second pass, as for a second derivative, counts nothing again."""
        for staged, new in zip(ctx.staged, ctx.saved_tensors, strict=False):
            staged.add_(new)
        ctx.staged = ()
        return dy, None, None, None, None
