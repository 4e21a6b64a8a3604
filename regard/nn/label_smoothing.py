"""Cross-entropy against smoothed labels (Szegedy et al. 2015, arXiv 1512.00567; epsilon 0.1 in arXiv 1706.03762).

    loss = -sum_v q_v log p_v        over="all":     q = (1 - epsilon) onehot + epsilon / V
                                     over="others":  q = 1 - epsilon at the label, epsilon / (V - 1) elsewhere

"all" is the paper's and torch's; "others" is that of tensor2tensor, torch's with epsilon V / (V - 1). The loss is at least the entropy of q, which
`subtract_entropy` takes off, so that losses of different epsilon start from the same zero. Cost: V a token.
"""

import math
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import ShapeError
from regard.core.options import Share, check_option
from regard.functional.rows import wide_type

IGNORED = -100
Over = Literal["all", "others"]


def smoothed_cross_entropy(
    logits: Float[Tensor, "*b V"],
    labels: Int[Tensor, "*b"],
    *,
    smoothing: float = 0.1,
    over: Over = "all",
    subtract_entropy: bool = False,
) -> Float[Tensor, ""]:
    """The mean over labels other than -100; zero where there are none."""
    if logits.shape[:-1] != labels.shape:
        raise ShapeError(
            f"smoothed_cross_entropy: logits {list(logits.shape)} need labels {list(logits.shape[:-1])}, "
            f"got {list(labels.shape)}"
        )
    check_option("smoothed_cross_entropy", "smoothing", smoothing, Share)
    check_option("smoothed_cross_entropy", "over", over, Over)
    V, kept = logits.shape[-1], labels != IGNORED
    count = kept.sum()
    epsilon = smoothing if over == "all" else smoothing * V / (V - 1)
    logits = torch.where(kept[..., None], logits, logits.new_zeros(())).to(wide_type(logits))
    loss = F.cross_entropy(
        logits.view(-1, V), labels.flatten().long(), label_smoothing=epsilon, reduction="sum"
    )
    if subtract_entropy:
        rest = epsilon / V
        q = ((1, 1 - epsilon + rest), (V - 1, rest))
        loss = loss + count.to(loss.dtype) * sum(n * p * math.log(p) for n, p in q if p > 0)
    return loss / count.clamp(min=1)
