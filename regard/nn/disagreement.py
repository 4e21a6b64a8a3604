"""Disagreement of attention heads, a term for the training objective (Li et al. 2018, arXiv 1810.10183).

    subspace   -1/H^2 sum_ij cos(V^i, V^j)        values
    position   -1/H^2 sum_ij |A^i * A^j|          attention weights, element by element
    output     -1/H^2 sum_ij cos(O^i, O^j)        outputs of the heads

Larger is more disagreement, so a loss takes it with a minus sign:

    seen = mixer.observe(x, mask=mask, weights=False)  # "position" alone needs the weights
    loss = loss - 1.0 * disagreement(seen, "output", valid=mask.valid)

Pairs with i = j count, as in the paper: subspace and output lie in [-1, 0]. Signed weights count by size. Sums over pairs of heads are taken as squared
sums over heads, |sum_i v_i|^2, at the cost of H numbers for each one of the input and not H^2.
"""

from typing import Literal

import torch
from jaxtyping import Bool
from torch import Tensor

from regard.core import Observation, Scalar, ShapeError, UnsupportedError, is_dense, shown
from regard.functional.rows import unit_norm

Kind = Literal["subspace", "position", "output"]

_FIELDS = {"subspace": "v", "position": "weights", "output": "heads"}


def disagreement(
    observation: Observation, kind: Kind = "output", *, valid: Bool[Tensor, "B N"] | None = None
) -> Scalar:
    """A number <= 0, larger where heads agree less; differentiable through `mixer.observe`, whose weights are those before dropout.

    valid: tokens that count; of the keys for "subspace", of the queries otherwise (the same in self-mixing). Cosines are
    of each token, and the mean is over all valid tokens, so that the length has no effect.

    Raises UnsupportedError if the mixer has no such heads, ShapeError and OptionError for what does not fit.
    """
    heads = getattr(observation, _FIELDS[kind])
    if heads is None:
        raise UnsupportedError(
            f"disagreement cannot take {kind!r}: the mixer's observation has no {_FIELDS[kind]}"
        )
    if not is_dense(heads) or heads.ndim != 4 or not heads.is_floating_point():
        raise ShapeError(
            f"disagreement: {_FIELDS[kind]} must be a dense float tensor [B, H, N, n], got {shown(heads)}"
        )
    B, H, N, _ = heads.shape
    exists = heads.new_ones(B, N, dtype=torch.bool) if valid is None else valid
    if exists.shape != (B, N):
        raise ShapeError(
            f"disagreement: valid must have shape [{B}, {N}], got {list(exists.shape)}"
        )
    heads = torch.where(exists[:, None, :, None], heads, 0.0)
    total = (heads.abs() if kind == "position" else unit_norm(heads)).sum(1).square().sum()
    return -total / (H**2 * exists.sum().clamp_min(1))
