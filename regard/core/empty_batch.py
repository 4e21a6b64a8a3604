"""An empty batch: one row of absent tokens is computed in its place, and none of its results is kept.

The result is connected to input and parameters, so that their gradients are zero; every process of a distributed run
takes part in a backward, whatever rows it was given.
"""

from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from regard.core.mask import Mask


def one_row(z: Tensor, fill: float | bool = 0) -> Tensor:
    """[0 ...] -> [1 ...], of one value."""
    return torch.cat([z, z.new_full((1, *z.shape[1:]), fill)])


def one_row_mask(mask: Mask, keys: Tensor, *, padding: bool) -> Mask:
    """The mask of the row; its keys [0 S D] are absent, where the mixer serves padding."""
    valid = keys.new_zeros(1, keys.shape[1], dtype=torch.bool) if padding else None
    marks, pairwise = mask.global_tokens, mask.pairwise
    if pairwise is not None and pairwise.shape[0] == 0:
        pairwise = one_row(pairwise, True)
    return Mask(mask.causal, valid, pairwise, None if marks is None else one_row(marks))


def one_row_state(state: Any) -> Any:
    """A state for the row, of the same shapes; its sums are one, since some are divided by."""
    return tree_map(lambda z: one_row(z, int(z.is_floating_point())), state)


def no_rows(state: Any) -> Any:
    return tree_map(lambda z: z[:0], state)
