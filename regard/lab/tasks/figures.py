"""Figures of predicted probabilities: AUC, AUC by user, log-loss, calibration.

    GAUC = sum_u n_u AUC_u / sum_u n_u    over users u with both answers (Zhou et al. 2018, arXiv 1706.06978, section 6.3)
    RelaImpr = (AUC - 1/2) / (AUC of the base - 1/2) - 1

Rows whose label is missing (NaN) are left out.
"""

from dataclasses import dataclass

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from regard.core import OptionError


@dataclass(frozen=True)
class Figures:
    auc: float
    gauc: float | None  # None where rows belong to nobody
    log_loss: float  # nats
    calibration_error: float  # expected, over 15 bins of equal width
    predicted_over_true: float  # mean probability over share of positives: 1 is calibrated
    rows: int


def figures(
    probabilities: Float[Tensor, "n"],
    labels: Float[Tensor, "n"],
    groups: Int[Tensor, "n"] | None = None,
) -> Figures:
    """Raises OptionError where the labels are not of both kinds."""
    from sklearn.metrics import log_loss
    from torchmetrics.functional.classification import binary_calibration_error

    known = ~labels.isnan()
    p, y = probabilities[known].double(), labels[known].long()
    return Figures(
        auc=auc(p, y),
        gauc=None if groups is None else gauc(p, y, groups[known]),
        log_loss=float(log_loss(y.numpy(), p.clamp(1e-12, 1 - 1e-12).numpy())),
        calibration_error=float(binary_calibration_error(p, y)),
        predicted_over_true=float(p.mean() / y.double().mean()),
        rows=len(y),
    )


def auc(scores: Float[Tensor, "n"], labels: Tensor) -> float:
    """Raises OptionError where the labels that are known are not of both kinds."""
    from sklearn.metrics import roc_auc_score

    known = ~labels.isnan()
    y = labels[known].long()
    if y.unique().numel() < 2:
        raise OptionError(
            f"AUC needs labels of both kinds: {len(y)} are known, {int(y.sum())} of them 1"
        )
    return float(roc_auc_score(y.numpy(), scores[known].double().numpy()))


def gauc(
    scores: Float[Tensor, "n"], labels: Int[Tensor, "n"], groups: Int[Tensor, "n"]
) -> float | None:
    """None where no group has both answers. By ranks, for all groups at once."""
    order = np.lexsort((scores.numpy(), groups.numpy()))
    s, y, g = scores.numpy()[order], labels.numpy()[order], groups.numpy()[order]
    group = np.cumsum(np.r_[0, g[1:] != g[:-1]])
    size = np.bincount(group)
    rank = np.arange(1, len(g) + 1) - (np.cumsum(size) - size)[group]
    tied = np.cumsum(np.r_[0, (s[1:] != s[:-1]) | (g[1:] != g[:-1])])
    rank = (np.bincount(tied, rank) / np.bincount(tied))[tied]
    positives = np.bincount(group, y)
    pairs = positives * (size - positives)
    known = pairs > 0
    if not known.any():
        return None
    won = np.bincount(group, rank * y) - positives * (positives + 1) / 2
    return float(np.average(won[known] / pairs[known], weights=size[known]))


def relative_improvement(value: float, base: float) -> float:
    """RelaImpr of one AUC over another."""
    return (value - 0.5) / (base - 0.5) - 1
