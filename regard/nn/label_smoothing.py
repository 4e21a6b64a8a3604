"""Cross-entropy against smoothed labels (Szegedy et al. 2015, arXiv 1512.00567; epsilon 0.1 in arXiv 1706.03762).

    loss = -sum_v q_v log p_v        over="all":     q = (1 - epsilon) onehot + epsilon / V
                                     over="others":  q = 1 - epsilon at the label, epsilon / (V - 1) elsewhere

"all" is the paper's and torch's; "others" is that of tensor2tensor. The loss is at least the entropy of q, which
`subtract_entropy` takes off, so that losses of different epsilon start from the same zero. Cost: V a token.
"""

import math
from typing import Literal

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.errors import OptionError, ShapeError

IGNORED = -100


def smoothed_cross_entropy(
    logits: Float[Tensor, "*b V"],
    labels: Int[Tensor, "*b"],
    *,
    smoothing: float = 0.1,
    over: Literal["all", "others"] = "all",
    subtract_entropy: bool = False,
) -> Float[Tensor, ""]:
    """The mean over labels other than -100; zero where there are none. smoothing: share that is spread over the others, or over `all`."""
    _check(logits, labels, smoothing, over)
    V = logits.shape[-1]
    kept = labels != IGNORED
    logits = torch.where(kept[..., None], logits, logits.new_zeros(()))
    log_p = logits.log_softmax(-1, dtype=torch.promote_types(logits.dtype, torch.float32))
    right = log_p.gather(-1, labels.where(kept, 0)[..., None].long())[..., 0]
    rest = smoothing / V if over == "all" else smoothing / (V - 1)
    top = 1 - smoothing + (rest if over == "all" else 0.0)
    loss = -(top - rest) * right - rest * log_p.sum(-1)
    if subtract_entropy:
        loss = loss + sum(n * q * math.log(q) for n, q in ((1, top), (V - 1, rest)) if q > 0)
    return torch.where(kept, loss, loss.new_zeros(())).sum() / kept.sum().clamp(min=1)


def _check(logits: Tensor, labels: Tensor, smoothing: float, over: str) -> None:
    if logits.shape[:-1] != labels.shape:
        raise ShapeError(
            f"smoothed_cross_entropy: logits {list(logits.shape)} need labels {list(logits.shape[:-1])}, "
            f"got {list(labels.shape)}"
        )
    if not isinstance(smoothing, int | float) or not 0 <= smoothing <= 1:
        raise OptionError(f"smoothing ({smoothing!r}) must be at least 0 and at most 1")
    if over not in ("all", "others"):
        raise OptionError(f"over must be 'all' or 'others', got {over!r}")
    if over == "others" and logits.shape[-1] < 2:
        raise OptionError("over='others' needs a vocabulary of at least 2: there is no other token")
