"""Mixing by weights that belong to positions and are not normalised (gMLP, Liu et al. 2021, arXiv 2105.08050)."""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.choice import Impl
from regard.functional.shared.blocks import by_tiles, visible_keys
from regard.functional.shared.implementation import convolves, cut


def spatial_mixing(
    w: Float[Tensor, "b T S"],
    z: Float[Tensor, "B S F"],
    *,
    bias: Float[Tensor, "b T"] | None = None,
    mask: Mask = OPEN,
    impl: Impl = "auto",
) -> Float[Tensor, "B T F"]:
    """y_i = bias_i + sum over allowed j of w_ij z_j."""
    T, S = w.shape[1:]
    if not mask.causal and mask.pairwise is None:
        return _sums(w, z if mask.valid is None else z * mask.valid[..., None], bias)

    def mix(rows: slice, w: Tensor, z: Tensor) -> Float[Tensor, "B t F"]:
        cols = visible_keys(mask, T, S, rows)
        allowed = mask.dense(T, S, device=z.device, rows=rows, cols=cols)[:, 0]
        return _sums(
            w[:, rows, cols] * allowed, z[:, cols], None if bias is None else bias[:, rows]
        )

    examples = w.shape[0] if mask.only_causal else z.shape[0]
    tile = cut("spatial", impl, z).queries(examples * S * w.element_size())
    return by_tiles(mix, T, tile, w, z, keep=True)


def _sums(w: Tensor, z: Tensor, bias: Float[Tensor, "b t"] | None) -> Float[Tensor, "B t F"]:
    if w.shape[0] == 1 and convolves(z):
        return F.conv1d(z, w[0, :, :, None], None if bias is None else bias[0])
    if bias is None:
        return w @ z
    return torch.baddbmm(bias[..., None], w.expand(z.shape[0], -1, -1), z)
