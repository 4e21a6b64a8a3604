"""Causal efficient attention (see `functional.efficient`) as kernel sums of pieces in cache.

    y_i = sum_c (rho_ic / z_ic) sum_j e_jc v_j,   e = exp(k - R),   R_c the largest key up to the end of the piece

The largest key is that of a piece, not of each token, so pairs are one matrix product. Where it moves by more than e^RANGE within a piece the
piece is halved: what an early query sees would leave the range of the numbers.
"""

import math

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core import Mask, OwnKeys
from regard.fast.cpu.favor import KEPT, TILE
from regard.fast.cpu.sums import chunk_sums, unfit_sums
from regard.functional.efficient import LEAST, no_keys, present_keys
from regard.functional.linear import CHUNK
from regard.functional.rows import Form, exp, recomputed, unrounded, wide_type

RANGE = 40.0


def attend(q, k, v, *, mask: Mask, form: Form) -> Tensor:
    k, wide = present_keys(k, mask.valid), wide_type(v)

    def step(q, k, v, S, z, m) -> tuple[Tensor, ...]:
        q, k, v = (x.to(wide) for x in (q, k, v))
        R = torch.maximum(m, k.detach().amax(2))
        e, shrink = exp(k - R[:, :, None]), exp(m - R)
        z_i = e.cumsum(2) + (z * shrink)[:, :, None]
        a = q.softmax(-1) / z_i.clamp_min(LEAST * math.exp(-RANGE))
        y, S = chunk_sums(a, e, v, S * shrink[..., None], form.chunk or CHUNK)
        return y, S, z_i[:, :, -1], R

    again = k.element_size() * k.numel() > (form.room or KEPT)
    state = [z.to(wide) for z in no_keys(v[:, :, :0], k.shape[-1])]  # m above an absent key's
    y = []
    sizes = piece_sizes(k.detach(), state[2], form.tile or TILE)
    with unrounded(k):
        for part in zip(*(z.split(sizes, 2) for z in (q, k, v)), strict=True):
            out, *state = recomputed(step, *part, *state, when=again)
            y.append(out)
    return torch.cat(y, 2).type_as(v)


def piece_sizes(k: OwnKeys, m: Float[Tensor, "B H K"], tile: int) -> list[int]:
    """Lengths of pieces within which no channel's largest key, from m on, moves by more than RANGE; NaN counts as no move."""
    left = [z.shape[2] for z in k.split(tile, 2)][::-1]
    sizes = list[int]()
    while left:
        t, start = left.pop(), sum(sizes)
        part = k[:, :, start : start + t].type_as(m)
        R = torch.maximum(m, part.amax(2))
        if t > 1 and bool((R - torch.maximum(m, part[:, :, 0]) > RANGE).any()):
            left += [t - t // 2, t // 2]
        else:
            sizes.append(t)
            m = R
    return sizes


def unfit(q, k, v, *, mask: Mask, form: Form) -> str | None:
    if not mask.causal:
        return "it is for causal order alone"
    return unfit_sums(q, k, v, q.shape[-1], mask, Form("pieces"))
