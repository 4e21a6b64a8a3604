"""Attention with relu(score)^2 in the place of softmax (Hua et al. 2022, arXiv 2202.10447).

    y_i = sum over allowed j of relu(q_i . k_j + b_ij)^2 v_j / n_i

A row needs no maximum and no sum of exponentials, and the division by n_i is left to the outputs.
"""

from collections.abc import Callable

from jaxtyping import Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.blocks import by_tiles, visible_keys
from regard.functional.shared.implementation import Impl, cut

Bias = Callable[[slice], Tensor]  # queries -> [b H t S]


def squared_relu_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
    bias: Bias | None = None,
    divisor: float | None = None,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """relu(q k^T + bias)^2 v over the allowed keys, divided by `divisor`, or by their number where it is None.

    bias(rows) -> [b H t S] for these queries, so that no bias is stored for all.
    """
    T, S = q.shape[2], k.shape[2]

    def attend(rows: slice, q: Tensor, k: Tensor, v: Tensor) -> Float[Tensor, "B H t V"]:
        cols = visible_keys(mask, T, S, rows)
        weights, count = _weights(q, k, mask, bias, rows, cols)
        return (weights @ v[:, :, cols]) / (count if divisor is None else divisor)

    return by_tiles(attend, T, cut("gated", impl, q).tile, q, k, v)


def squared_relu_weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    *,
    mask: Mask = OPEN,
    bias: Bias | None = None,
    divisor: float | None = None,
) -> Float[Tensor, "B H T S"]:
    """The weights that `squared_relu_attention` applies."""
    everything = slice(0, q.shape[2]), slice(0, k.shape[2])
    weights, count = _weights(q, k, mask, bias, *everything)
    return weights / (count if divisor is None else divisor)


def _weights(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    mask: Mask,
    bias: Bias | None,
    rows: slice,
    cols: slice,
) -> tuple[Float[Tensor, "B H t s"], Int[Tensor, "b h t 1"]]:
    """Weights of these queries for these keys before the division, and the number of keys that each query sees."""
    scores = q[:, :, rows] @ k[:, :, cols].mT
    scores = scores if bias is None else scores + bias(rows)[..., cols]
    allowed = mask.dense(q.shape[2], k.shape[2], device=q.device, rows=rows, cols=cols)
    weights = scores.relu_().square().mul_(allowed)
    return weights, allowed.sum(-1, keepdim=True).clamp_min(1)
