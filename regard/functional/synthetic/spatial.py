"""Mixing by weights that belong to positions and are not normalised (gMLP, Liu et al. 2021, arXiv 2105.08050)."""

import torch
from jaxtyping import Float
from torch import Tensor

from regard.core.mask import OPEN, Mask

QUERY_BLOCK = 256  # queries whose restricted weights are held at once


def spatial_mixing(
    w: Float[Tensor, "b T S"],
    z: Float[Tensor, "B S F"],
    *,
    bias: Float[Tensor, "b T"] | None = None,
    mask: Mask = OPEN,
) -> Float[Tensor, "B T F"]:
    """y_i = bias_i + sum over allowed j of w_ij z_j."""
    T, S = w.shape[1:]
    if not mask.causal and mask.pairwise is None:
        return _sums(w, z if mask.valid is None else z * mask.valid[..., None], bias)
    parts = []
    for start in range(0, T, QUERY_BLOCK):
        rows = slice(start, min(start + QUERY_BLOCK, T))
        seen = rows.stop if mask.causal and T == S else S  # later keys are never allowed
        allowed = mask.dense(T, S, device=z.device, rows=rows)[:, 0, :, :seen]
        here = None if bias is None else bias[:, rows]
        parts.append(_sums(w[:, rows, :seen] * allowed, z[:, :seen], here))
    return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)


def _sums(w: Tensor, z: Tensor, bias: Float[Tensor, "b t"] | None) -> Float[Tensor, "B t F"]:
    if bias is None:
        return w @ z
    return torch.baddbmm(bias[..., None], w.expand(z.shape[0], -1, -1), z)
