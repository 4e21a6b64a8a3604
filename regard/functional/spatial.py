"""Mixing by weights that belong to positions and are not normalised (gMLP, Liu et al. 2021, arXiv 2105.08050)."""

from jaxtyping import Float
from torch import Tensor

from regard.core import OPEN, Mask
from regard.functional.rows import Impl, mixed, tiled, visible_keys


def spatial_mixing(
    w: Float[Tensor, "#B T S"],
    z: Float[Tensor, "B S F"],
    *,
    bias: Float[Tensor, "#B T"] | None = None,
    mask: Mask = OPEN,
    impl: Impl = "auto",
) -> Float[Tensor, "B T F"]:
    """y_i = bias_i + sum over allowed j of w_ij z_j."""
    T, S = w.shape[1:]

    def some(rows: slice, w: Tensor, z: Tensor) -> Float[Tensor, "B t F"]:
        cols = visible_keys(mask, T, S, rows)
        allowed = mask.dense(T, S, device=z.device, rows=rows, cols=cols)[:, 0]
        return mixed(w[..., cols] * allowed, z[:, cols])

    if mask.causal or mask.pairwise is not None:
        y = tiled(some, impl, w, z)
    else:
        y = mixed(w, z if mask.valid is None else z * mask.valid[..., None])
    return y if bias is None else y + bias[..., None]
