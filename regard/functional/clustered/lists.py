"""Softmax attention in which each query has its own list of keys."""

import math

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.clustered.within_clusters import pairs_at
from regard.functional.shared.blocks import rows_at
from regard.functional.softmax.dense import masked_softmax


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    index: Int[Tensor, "B H T W"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
) -> Float[Tensor, "B H T V"]:
    """softmax(scale q k^T) v over a list of keys for each query (-1: none); `mask.pairwise` restricts it further."""
    weights = _listed_weights(q, k, index, mask, scale)
    return (weights[..., None, :] @ _listed(v, index))[..., 0, :]


def weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    index: Int[Tensor, "B H T W"],
    *,
    mask: Mask = OPEN,
    scale: float | None = None,
) -> Float[Tensor, "B H T S"]:
    found = _listed_weights(q, k, index, mask, scale)
    dense = found.new_zeros(*index.shape[:3], k.shape[2])
    return dense.scatter_add(3, index.clamp(min=0), found)


def _listed_weights(q, k, index, mask: Mask, scale: float | None) -> Float[Tensor, "B H T W"]:
    scale = 1 / math.sqrt(q.shape[-1]) if scale is None else scale
    scores = scale * (_listed(k, index) @ q[..., None])[..., 0]
    allowed = index >= 0
    if mask.pairwise is not None:
        i = torch.arange(q.shape[2], device=q.device)[:, None].expand_as(index)
        allowed = allowed & pairs_at(mask.pairwise, i, index)
    return masked_softmax(scores, allowed)


def _listed(z: Float[Tensor, "B H S K"], index: Int[Tensor, "B H T W"]) -> Tensor:
    """[B H S K] -> [B H T W K]"""
    flat = index.clamp(min=0).flatten(0, 1)
    rows = rows_at(z.flatten(0, 1), flat.flatten(1)).unflatten(1, flat.shape[1:])
    return rows.unflatten(0, index.shape[:2])
