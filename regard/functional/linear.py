"""Kernel attention: a product of feature maps in the place of exp(q k), so that keys are summed once.

    y_i = phi(q_i) S / (phi(q_i) z),   S = sum_j phi(k_j) v_j^T,   z = sum_j phi(k_j)

Causal sums run over j <= i, in chunks: a [C C] product inside the chunk, and the summed state of the chunks before
(Katharopoulos et al. 2020, arXiv 2006.16236).
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.compaction import permute
from regard.core.mask import OPEN, Mask

CHUNK = 128
EPS = 1e-6


def elu_plus_one(x: Tensor) -> Tensor:
    """elu(x) + 1: positive, as many features as inputs (arXiv 2006.16236)."""
    return F.elu(x) + 1


def linear_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
    feature_map: Callable[[Tensor], Tensor] = elu_plus_one,
    eps: float = EPS,
) -> Float[Tensor, "B H T V"]:
    """Linear attention with any feature map [.. K] -> [.. M] applied to queries and keys."""
    phi_q, phi_k = feature_map(q), feature_map(k)
    if mask.valid is not None:
        phi_k = phi_k * mask.valid[:, None, :, None]
    if not mask.causal:
        return read(phi_q, *summed(phi_k, v), eps)
    T = q.shape[2]
    phi_q, phi_k, v = on_one_timeline(phi_q, phi_k, v, mask)
    y, _, _ = causal_attention(phi_q, phi_k, v, eps=eps)
    return y[:, :, y.shape[2] - T :]


def summed(phi_k: Float[Tensor, "B H S M"], v: Float[Tensor, "B H S V"]) -> tuple[Tensor, Tensor]:
    """The state (S [B H M V], z [B H M]) of all keys."""
    return phi_k.transpose(-1, -2) @ v, phi_k.sum(2)


def read(
    phi_q: Float[Tensor, "B H T M"], S: Float[Tensor, "B H M V"], z: Float[Tensor, "B H M"], eps: float
) -> Float[Tensor, "B H T V"]:
    return phi_q @ S / (phi_q @ z[..., None] + eps)


def causal_attention(
    phi_q: Float[Tensor, "B H T M"],
    phi_k: Float[Tensor, "B H T M"],
    v: Float[Tensor, "B H T V"],
    S: Float[Tensor, "B H M V"] | None = None,
    z: Float[Tensor, "B H M"] | None = None,
    *,
    eps: float = EPS,
) -> tuple[Float[Tensor, "B H T V"], Float[Tensor, "B H M V"], Float[Tensor, "B H M"]]:
    """Outputs and the state after them, from the state before (none: zero)."""
    B, H, T, M = phi_q.shape
    V = v.shape[-1]
    S = phi_k.new_zeros(B, H, M, V) if S is None else S
    z = phi_k.new_zeros(B, H, M) if z is None else z
    if T == 1:  # a decoding step
        S = S + phi_k.transpose(-1, -2) @ v
        z = z + phi_k[:, :, 0]
        return read(phi_q, S, z, eps), S, z
    C = min(CHUNK, T)
    rest = -T % C
    phi_q, phi_k, v = (F.pad(a, (0, 0, 0, rest)).unflatten(2, (-1, C)) for a in (phi_q, phi_k, v))
    state = torch.cat([S[:, :, None], phi_k.transpose(-1, -2) @ v], dim=2).cumsum(2)  # [B H N+1 M V]
    norm = torch.cat([z[:, :, None], phi_k.sum(3)], dim=2).cumsum(2)  # [B H N+1 M]
    weights = (phi_q @ phi_k.transpose(-1, -2)).tril()
    numerator = weights @ v + phi_q @ state[:, :, :-1]
    denominator = weights.sum(-1, keepdim=True) + phi_q @ norm[:, :, :-1, :, None]
    y = (numerator / (denominator + eps)).flatten(2, 3)[:, :, :T]
    return y, state[:, :, -1], norm[:, :, -1]


def on_one_timeline(phi_q: Tensor, phi_k: Tensor, v: Tensor, mask: Mask) -> tuple[Tensor, Tensor, Tensor]:
    """Queries and keys padded in front to one length, the last query beside the last key."""
    T, S = phi_q.shape[2], phi_k.shape[2]
    if mask.shift is not None:  # rows of different lengths: bring each row's last key to the last column
        count = mask.shift + T
        order = (torch.arange(S, device=count.device) + count[:, None]) % S
        phi_k, v = permute(phi_k, order, dim=2), permute(v, order, dim=2)
    if T < S:
        phi_q = F.pad(phi_q, (0, 0, S - T, 0))
    elif S < T:
        phi_k, v = F.pad(phi_k, (0, 0, T - S, 0)), F.pad(v, (0, 0, T - S, 0))
    return phi_q, phi_k, v


def kernel_weights(
    phi_q: Float[Tensor, "B H T M"], phi_k: Float[Tensor, "B H S M"], *, mask: Mask = OPEN, eps: float = EPS
) -> Float[Tensor, "B H T S"]:
    """The weights that the sums above amount to."""
    allowed = mask.dense(phi_q.shape[2], phi_k.shape[2], device=phi_q.device)
    weights = (phi_q @ phi_k.transpose(-1, -2)) * allowed
    return weights / (weights.sum(-1, keepdim=True) + eps)
