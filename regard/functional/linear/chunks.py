"""Causal sums over a group of chunks, forward and backward: one step of a scan over the sequence.

    y_i = a_i S + sum_{j <= i} (a_i e_j) v_j,   S' = S + sum_j e_j v_j^T

Each group's features are made, used while they are in cache, and made again in the backward, which goes from the last
group to the first: features of the whole sequence would be fresh memory at every call, which costs more than the sums.
Only the state passes from group to group. A scale that changes along the sequence (a running maximum, a decay) is taken
at the end of a group. If it changes by more than e^RANGE within one, the group is halved: factors on both sides of a
product then stay in the range of the numbers, and one matrix product serves all of them.
"""

from collections.abc import Iterator
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.functional.shared.blocks import tiles
from regard.functional.shared.implementation import Cut

RANGE = 40.0
GROUP = 64
"""States that one product goes through; longer sequences of chunks are scanned in groups."""


def decayed(
    state: Float[Tensor, "B H K V"],
    gain: Float[Tensor, "B H N K V"],
    log_decay: Float[Tensor, "B H N R"],
) -> tuple[Float[Tensor, "B H N K V"], Float[Tensor, "B H K V"]]:
    """S_n = exp(d_n) S_(n-1) + gain_n: the states before every chunk, and the last. R = 1, or K for a decay of each row.

    S_n = sum_m exp(d_(m+1) + .. + d_n) gain_m, as one product with the [N N] factors, whose exponents are sums of d <= 0.
    """
    N, R = log_decay.shape[2:]
    if N > GROUP:
        return _decayed_in_groups(state, gain, log_decay)
    wide = torch.promote_types(gain.dtype, torch.float32)
    d = F.pad(log_decay.transpose(2, 3), (1, 0)).to(wide)
    before = torch.ones(N + 1, N + 1, dtype=torch.bool, device=d.device).tril(-1)
    apart = torch.where(before, d[..., None], 0).cumsum(-2)
    factors = apart.masked_fill(before.mT, -torch.inf).exp()
    sources = torch.cat([state[:, :, None], gain], dim=2).to(wide)
    sources = sources.unflatten(3, (R, -1)).transpose(2, 3)
    states = (factors @ sources.flatten(4)).view_as(sources).transpose(2, 3).flatten(3, 4)
    return states[:, :, :-1].to(gain.dtype), states[:, :, -1].to(state.dtype)


def _decayed_in_groups(state: Tensor, gain: Tensor, log_decay: Tensor) -> tuple[Tensor, Tensor]:
    H, N = gain.shape[1:3]
    gain, d = (
        F.pad(z, (0, 0) * (z.dim() - 3) + (0, -N % GROUP)).unflatten(2, (-1, GROUP)).flatten(1, 2)
        for z in (gain, log_decay)
    )
    inside, gains = decayed(gain.new_zeros(*gain.shape[:2], *state.shape[2:]), gain, d)
    first, last = decayed(state, gains.unflatten(1, (H, -1)), d.sum(2).unflatten(1, (H, -1)))
    so_far = F.pad(d[:, :, :-1], (0, 0, 1, 0)).cumsum(2).exp().to(gain.dtype)[..., None]
    rows = first.flatten(1, 2)[:, :, None].unflatten(3, (d.shape[3], -1))
    states = inside + (rows * so_far[..., None]).flatten(3, 4)
    return states.unflatten(1, (H, -1)).flatten(2, 3)[:, :, :N], last


def needs_backward(*inputs: Tensor | None) -> bool:
    """True if a backward may follow, which needs the states between the groups."""
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)


def run(function: type[torch.autograd.Function], how: Any, *inputs: Tensor | None) -> Tensor:
    """function(how, *inputs), with the inputs in autocast's dtype where it is on; no other step is left to autocast."""
    if not torch.is_autocast_enabled("cpu"):
        return function.apply(how, *inputs)
    dtype = torch.get_autocast_dtype("cpu")
    lower = (x if x is None or x.dtype == torch.float64 else x.to(dtype) for x in inputs)
    with torch.autocast("cpu", enabled=False):
        return function.apply(how, *lower)


def examples(like: Float[Tensor, "B H T K"], width: int, cut: Cut) -> Iterator[slice]:
    """Examples whose chunks are worked at together; mostly all of them."""
    B, H, T = like.shape[:3]
    token = like.element_size() * H * max(1, width)
    return tiles(B, max(1, cut.room // (token * min(2 * cut.chunk, T))))


def in_chunks(like: Float[Tensor, "B H T K"], width: int, cut: Cut) -> bool:
    """True if features of all tokens, `width` channels to a head, do not fit into `cut.room`; False off the CPU."""
    B, H, T = like.shape[:3]
    return cut.readable and 0 < cut.room < like.element_size() * B * H * T * max(1, width)


class ChunkGroups:
    """Groups of chunks of T tokens, in order; each is whole chunks, or shorter than one.

    `for rows in groups`; `groups.halve(rows)` inside the loop brings the two halves of `rows` next. A group starts with
    two chunks and doubles as long as its features fit into `cut.room`, up to eight chunks per thread.
    """

    def __init__(self, T: int, token_bytes: int, cut: Cut):
        self.chunk = C = cut.chunk
        size = 2 * C
        while size < 8 * C * cut.threads and 2 * size * token_bytes <= cut.room:
            size *= 2
        whole = T // C * C
        ends = [*range(size, whole, size), whole, T]
        self._left = [slice(t, u) for t, u in zip([0, *ends], ends, strict=False) if t < u][::-1]

    def __iter__(self) -> Iterator[slice]:
        while self._left:
            yield self._left.pop()

    def halve(self, rows: slice) -> None:
        half = (rows.stop - rows.start) // 2
        middle = rows.start + (half if half < self.chunk else half // self.chunk * self.chunk)
        self._left += [slice(middle, rows.stop), slice(rows.start, middle)]


def token_bytes(z: Float[Tensor, "b M *V"]) -> int:
    """Feature bytes per token, summed over heads and examples."""
    return z.element_size() * z.shape[0] * z.shape[1]


def moves_far(change: Float[Tensor, "*b"]) -> bool:
    """True if a scale, in log, changes by more than RANGE anywhere; NaN counts as no change."""
    return bool((change > RANGE).any())


def cut(x: Float[Tensor, "B H T K"], group: slice, rows: slice) -> Float[Tensor, "b t K"]:
    """These rows of these examples, with heads flattened into the first axis."""
    return x[group, :, rows].flatten(0, 1)


def put(x: Float[Tensor, "B H T K"], group: slice, rows: slice, piece: Tensor) -> None:
    """The inverse of `cut`."""
    target = x[group, :, rows]
    target.copy_(piece.view(target.shape))


def sums(
    a: Float[Tensor, "b t M"],
    e: Float[Tensor, "b t M"],
    v: Float[Tensor, "b t V"],
    S: Float[Tensor, "b M V"],
    chunk: int,
) -> tuple[Float[Tensor, "b t V"], Float[Tensor, "b M V"]]:
    """y and S'. Cost per token: 2 C (M + V) inside chunks of C, half of it above the diagonal, and 4 M V for the state."""
    b, t = a.shape[:2]
    a, e, v = (_chunks(x, chunk) for x in (a, e, v))
    P = (a @ e.mT).tril_()
    before, S = _states(S, e.mT @ v)
    return (P @ v).baddbmm_(a, before.to(a.dtype)).view(b, t, -1), S


class Gradients(NamedTuple):
    a: Float[Tensor, "b t M"]
    e: Float[Tensor, "b t M"]
    v: Float[Tensor, "b t V"]
    S: Float[Tensor, "b M V"]


def sums_backward(
    a: Float[Tensor, "b t M"],
    e: Float[Tensor, "b t M"],
    v: Float[Tensor, "b t V"],
    S: Float[Tensor, "b M V"],
    dy: Float[Tensor, "b t V"],
    dS: Float[Tensor, "b M V"],
    chunk: int,
) -> Gradients:
    """S: the state before. dS: the gradient of the state after, from the groups that follow.

    With P = tril(a e^T) and its gradient D = tril(dy v^T). What a chunk adds to S its queries add to dS.
    """
    b, t = a.shape[:2]
    a, e, v, dy = (_chunks(x, chunk) for x in (a, e, v, dy))
    S = _states(S, e.mT @ v)[0].to(a.dtype)
    D = (dy @ v.mT).tril_()
    da = (D @ e).baddbmm_(dy, S.mT)
    behind, dS = _states(dS, a.mT @ dy, backwards=True)
    behind = behind.to(a.dtype)
    de = (D.mT @ a).baddbmm_(v, behind.mT)
    P = torch.bmm(a, e.mT, out=D).tril_()
    dv = (P.mT @ dy).baddbmm_(e, behind)
    da, de, dv = (x.view(b, t, -1) for x in (da, de, dv))
    return Gradients(da, de, dv, dS)


def _chunks(x: Float[Tensor, "b t M"], chunk: int) -> Float[Tensor, "n C M"]:
    return x.reshape(-1, min(chunk, x.shape[1]), x.shape[2])


def _states(
    S: Float[Tensor, "b M V"], more: Float[Tensor, "n M V"], *, backwards: bool = False
) -> tuple[Float[Tensor, "n M V"], Float[Tensor, "b M V"]]:
    """States before each chunk (backwards: after each), and after all; in float32 at least, as S is."""
    more = more.view(S.shape[0], -1, *S.shape[1:])
    n = more.shape[1]
    states = S.new_empty(more.shape)
    order = range(n)[::-1] if backwards else range(n)
    for i in order:
        states[:, i] = S
        S = states[:, i] + more[:, i]
    return states.flatten(0, 1), S
