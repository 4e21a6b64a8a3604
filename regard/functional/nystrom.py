"""Nystrom attention (Xiong et al. 2021, arXiv 2102.03902): softmax attention through m landmarks, means of successive tokens.

    y = softmax(Q Kl^T) pinv(softmax(Ql Kl^T)) softmax(Ql K^T) V,   queries scaled by 1 / sqrt(K)
    pinv:  Z <- Z (13 I - A Z (15 I - A Z (7 I - A Z))) / 4, six times, from A^T / (|A|_1 |A|_inf) of each matrix

A row's valid tokens are cut into min(m, their number) runs of like length, so that padding enters no mean. The published code begins the inverse
with a maximum over its batch, so that rows depend on their neighbours; here each matrix has its own. Time and memory grow as T m.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core import OPEN, Keys, Marks, Mask, Mixed, Queries, Values
from regard.functional.projected import segment_means
from regard.functional.rows import fitted, masked_softmax, ranged, upto

STEPS = 6
"""Steps of the inverse."""


def nystrom_attention(
    q: Queries, k: Keys, v: Values, *, num_landmarks: int, mask: Mask = OPEN, cross: bool = False
) -> Mixed:
    """Queries over keys, in any order, by way of `num_landmarks` means of each. `mask.valid`: of the keys, valid ones first, and of the queries unless `cross`."""
    dtype = v.dtype
    q, k, v = ranged(q * q.shape[3] ** -0.5, k, v)
    means, some = landmarks(k, num_landmarks, mask.valid)
    queries, own = landmarks(q, num_landmarks, None if cross else mask.valid)
    own, some = own[:, None, :, None], some[:, None, None]
    first = masked_softmax(q @ means.mT, some)
    inverse = pseudo_inverse(masked_softmax(queries @ means.mT, own & some))
    seen = own.expand(-1, -1, -1, k.shape[2])
    seen = seen if mask.valid is None else seen & mask.valid[:, None, None]
    last = masked_softmax(queries @ k.mT, seen)
    return (first @ (inverse @ (last @ v))).to(dtype)


def landmarks(
    z: Keys, count: int, valid: Marks | None
) -> tuple[Float[Tensor, "B H m K"], Bool[Tensor, "b m"]]:
    """Means of runs of valid tokens, and which there are: a row of fewer tokens has one for each."""
    S = z.shape[2]
    count = fitted(count, S)
    length = (z.new_ones(1, S, dtype=torch.bool) if valid is None else valid).sum(1)
    used = length.clamp_max(count)
    return segment_means(length, S, count, z.dtype, used) @ z, upto(count, z) < used[:, None]


def pseudo_inverse(A: Float[Tensor, "*b m n"]) -> Float[Tensor, "*b n m"]:
    """Moore and Penrose's inverse, nearly: see above. Rows and columns of zeros stay so."""
    norms = A.abs().sum(-1).amax(-1) * A.abs().sum(-2).amax(-1)
    Z = A.mT / norms.clamp_min(torch.finfo(A.dtype).tiny)[..., None, None]
    eye = torch.eye(A.shape[-2], device=A.device, dtype=A.dtype)
    for _ in range(STEPS):
        AZ = A @ Z
        Z = Z @ (13 * eye - AZ @ (15 * eye - AZ @ (7 * eye - AZ))) / 4
    return Z
