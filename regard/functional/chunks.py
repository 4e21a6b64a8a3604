"""Chunks of time as an axis, and the states between them, S_n = exp(d_n) S_(n-1) + gain_n, without a walk along it."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.functional.numerics import wide_type

GROUP = 64
"""States that one product goes through."""


def in_chunks(x: Float[Tensor, "B H T M"], C: int, value: float = 0.0) -> Tensor:
    """[B H N C M], filled up with `value`. An exported program has two more: an axis of one would be a case of its own."""
    B, H, T, M = x.shape
    N = (T + C - 1) // C + 2 * torch.compiler.is_exporting()
    if N * C != T:  # a padding of nothing is a copy
        x = F.pad(x, (0, 0, 0, N * C - T), value=value)
    return x.reshape(B, H, N, C, M)


def fitted(chunk: int, T: int) -> int:
    """Tokens of a chunk: no more than there are, where their number is known."""
    return chunk if torch.compiler.is_exporting() else min(chunk, T)


def accumulated(
    state: Float[Tensor, "B H M V"],
    gain: Float[Tensor, "B H N M V"],
    log_decay: Float[Tensor, "B H N R"] | None = None,
) -> tuple[Float[Tensor, "B H N M V"], Float[Tensor, "B H M V"]]:
    """States S_n = exp(d_n) S_(n-1) + gain_n, before every chunk and after the last; no decay: d = 0. R = 1, or M for one of each row.

    With a decay: in groups, and then over the groups, so that no axis is walked and no product is wider than N / GROUP.
    """
    sources = torch.cat([state[:, :, None], gain[:, :, :-1]], dim=2)
    if log_decay is None:
        before = sources.cumsum(2, dtype=wide_type(gain)).to(gain.dtype)
        return before, (before[:, :, -1] + gain[:, :, -1]).to(state.dtype)
    d = F.pad(log_decay[:, :, :-1], (0, 0, 1, 0))
    N, R = d.shape[2:]
    C = fitted(GROUP, N)
    d, x = in_chunks(d, C), in_chunks(sources.flatten(3), C).unflatten(4, gain.shape[3:])
    inside = _products(x, d)
    ends = _products(inside[:, :, :, -1], d.sum(3))
    carried = F.pad(ends[:, :, :-1], (0, 0, 0, 0, 1, 0))[:, :, :, None].unflatten(4, (R, -1))
    carried = (carried * d.cumsum(3).exp().to(gain.dtype)[..., None, None]).flatten(4, 5)
    before = (inside + carried).flatten(2, 3)[:, :, :N].to(gain.dtype)
    kept = log_decay[:, :, -1].exp().to(gain.dtype)[..., None, None]
    last = (kept * before[:, :, -1].unflatten(2, (R, -1))).flatten(2, 3) + gain[:, :, -1]
    return before, last.to(state.dtype)


def _products(
    sources: Float[Tensor, "*b N M V"], log_decay: Float[Tensor, "*b N R"]
) -> Float[Tensor, "*b N M V"]:
    """S_n = sum_(m <= n) exp(d_(m+1) + .. + d_n) sources_m; exponents are sums of d <= 0, never differences."""
    N, R = log_decay.shape[-2:]
    d = log_decay.mT.to(wide_type(sources))
    ahead = torch.ones(N, N, dtype=torch.bool, device=d.device).tril(-1)
    apart = torch.where(ahead, d[..., None], 0).cumsum(-2)  # R n m
    factors = apart.masked_fill(ahead.mT, -torch.inf).exp()
    x = sources.to(d.dtype).unflatten(-2, (R, -1)).movedim(-3, -4)  # R N M/R V
    y = (factors @ x.flatten(-2)).view_as(x)
    return y.movedim(-4, -3).flatten(-3, -2).to(sources.dtype)
