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

from typing import Literal, get_args

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core import Observation, OptionError, ShapeError, UnsupportedError
from regard.functional.rows import unit_norm

Kind = Literal["subspace", "position", "output"]
Cosine = Literal["token", "matrix"]
Reduction = Literal["mean", "sum"]

_FIELDS = {"subspace": "v", "position": "weights", "output": "heads"}


def disagreement(
    observation: Observation,
    kind: Kind = "output",
    *,
    valid: Bool[Tensor, "B N"] | None = None,
    cosine: Cosine = "token",
    reduction: Reduction = "mean",
) -> Float[Tensor, ""]:
    """How little the heads agree, <= 0; differentiable through `mixer.observe`, whose weights are those before dropout.

    valid: tokens that count; of the keys for "subspace", of the queries otherwise (the same in self-mixing).
    cosine: of each token, then averaged (no effect of length), or of the whole matrix of a head ("matrix").
    reduction: mean over all valid tokens, or sum over the tokens of each example ("sum", the paper's scale of
    "position"), averaged over examples that have any. With cosine="matrix" there are no tokens to sum over: the mean over examples.

    Raises UnsupportedError if the mixer has no such heads, ShapeError and OptionError for what does not fit.
    """
    _check(kind, cosine, reduction)
    heads = getattr(observation, _FIELDS[kind])
    if heads is None:
        raise UnsupportedError(
            f"disagreement cannot take {kind!r}: the mixer's observation has no {_FIELDS[kind]}"
        )
    B, H, N, _ = heads.shape
    exists = heads.new_ones(B, N, dtype=torch.bool) if valid is None else valid
    if tuple(exists.shape) != (B, N):
        raise ShapeError(
            f"disagreement: valid must have shape [{B}, {N}], got {list(exists.shape)}"
        )
    heads = torch.where(exists[:, None, :, None], heads, heads.new_zeros(()))
    if cosine == "matrix":
        unit, counted = unit_norm(heads.flatten(2)), exists.any(1).sum()
    else:
        unit = heads.abs() if kind == "position" else unit_norm(heads)
        counted = exists.sum() if reduction == "mean" else exists.any(1).sum()
    return -unit.sum(1).square().sum() / (H**2 * counted.clamp_min(1))


def _check(kind: Kind, cosine: Cosine, reduction: Reduction) -> None:
    for name, value, known in (
        ("kind", kind, get_args(Kind)),
        ("cosine", cosine, get_args(Cosine)),
        ("reduction", reduction, get_args(Reduction)),
    ):
        if value not in known:
            raise OptionError(f"disagreement: {name} must be one of {known}, got {value!r}")
    if cosine == "matrix" and (kind == "position" or reduction == "sum"):
        raise OptionError(
            "disagreement: cosine='matrix' is for kind='subspace' or 'output' with reduction='mean', "
            f"got kind={kind!r}, reduction={reduction!r}"
        )
