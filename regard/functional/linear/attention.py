"""Kernel attention: a product of feature maps in the place of exp(q k), so that keys are summed once.

    y_i = phi(q_i) S_i / (phi(q_i) z_i),   S_i = sum_j d_ij phi(k_j) v_j^T,   z_i = sum_j d_ij phi(k_j)

Bidirectional and cross: all keys, d = 1. Causal: j <= i, in chunks, each a [C C] product inside the chunk and the summed
state of the chunks before (Katharopoulos et al. 2020, arXiv 2006.16236). With a log-decay per token, d_ij = e^(G_i - G_j)
where G is its running sum: gates (arXiv 2103.02143) and running stabilisers of positive features both have this form.
"""

from collections.abc import Callable
from functools import partial

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core.compaction import permute
from regard.core.mask import OPEN, Mask
from regard.functional.linear import chunks, fla
from regard.functional.linear.chunked import (
    ChunkedScan,
    Denominator,
    Features,
    HandWritten,
    KeyFeatures,
    ScanRequest,
    present,
)
from regard.functional.linear.feature_maps import (
    FEATURE_MAPS,
    FeatureMap,
    elu_plus_one,
    elu_plus_one_by_hand,
)
from regard.functional.shared.cache import is_ours
from regard.functional.shared.implementation import Cut, Impl, choose, readable
from regard.functional.shared.numerics import exp, least, wide_type
from regard.functional.shared.recompute import twice_differentiable

EPS = 1e-6


def positive(total: Float[Tensor, "B H T 1"]) -> Float[Tensor, "B H T 1"]:
    """For features that are never negative: eps is added."""
    return total + least(total, EPS)


def linear_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
    feature_map: Callable[[Tensor], Tensor] | None = None,
    denominator: Denominator = positive,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Linear attention with any feature map [.. K] -> [.. M] of queries and keys (default: elu(x) + 1).

    impl, here and below: see `implementation`.
    """
    phi = elu_plus_one if feature_map is None else feature_map
    if phi is not elu_plus_one and not isinstance(phi, FeatureMap):  # may hold parameters
        return kernel_attention(phi(q), phi(k), v, mask=mask, denominator=denominator, impl=impl)
    hand_written = BY_HAND if phi in (elu_plus_one, FEATURE_MAPS["elu_plus_one"]) else None
    features = Features(
        q.shape[-1],
        phi,
        lambda before, k, valid, extra: KeyFeatures(phi(k)),
        hand_written=hand_written,
    )
    return feature_attention(q, k, v, features, mask=mask, denominator=denominator, impl=impl)


def _keys_by_hand(before: None, k: Tensor, valid: Tensor | None):
    phi, back = elu_plus_one_by_hand(k)
    return KeyFeatures(phi), back


BY_HAND = HandWritten(elu_plus_one_by_hand, _keys_by_hand)


def kernel_attention(
    phi_q: Float[Tensor, "B H T M"],
    phi_k: Float[Tensor, "B H S M"],
    v: Float[Tensor, "B H S V"],
    *,
    mask: Mask = OPEN,
    log_decay: Float[Tensor, "B H S"] | None = None,
    denominator: Denominator = positive,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Attention from ready features. A decay is a matter of causal order, and needs `mask.causal`."""
    features = Features(
        phi_q.shape[-1],
        queries=lambda phi_q: phi_q,
        keys=lambda before, phi_k, valid, log_decay: KeyFeatures(phi_k, log_decay),
        decays=log_decay is not None,
    )
    return feature_attention(
        phi_q, phi_k, v, features, mask=mask, extra=log_decay, denominator=denominator, impl=impl
    )


def feature_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    features: Features,
    *weights: Tensor,
    mask: Mask = OPEN,
    extra: Float[Tensor, "B H S"] | None = None,
    rise: Float[Tensor, "B H"] | None = None,
    denominator: Denominator = positive,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Attention from what `features` makes of the tokens, as a chunked scan where the features do not fit into `cut.room`.

    rise: zeros that have a gradient, the log of what the keys' `features.floor` is multiplied by.
    """
    chosen = choose(family(features.decays), impl, v, mask)
    beside = mask.causal and mask.shift is None and q.shape[2] == k.shape[2]
    kept = chunks.needs_backward(q, k, v, extra, rise, *weights)

    def plain(
        q: Tensor,
        k: Tensor,
        v: Tensor,
        extra: Tensor | None,
        rise: Tensor | None,
        *weights: Tensor,
    ) -> Tensor:
        phi_q = features.queries(q, *weights)
        phi_k, log_decay, _ = features.keys(None, k, mask.valid, extra, *weights)
        T = phi_q.shape[2]
        if mask.causal:
            phi_k = present(phi_k, mask.valid)
            phi_q, phi_k, v, log_decay = on_one_timeline(phi_q, phi_k, v, log_decay, mask)
            sums, total, _, _ = _sums(chosen, phi_q, phi_k, v, log_decay=log_decay)
        else:
            if log_decay is not None:
                phi_k = phi_k * _to_end(log_decay).to(phi_k.dtype)[..., None]
            phi_k = present(phi_k, mask.valid)
            S, z = summed(phi_k, v)
            if rise is not None:
                phi_q = phi_q + features.floor
                S, z = _raised(S, z, features.floor * rise.to(wide_type(v)).exp(), v, mask)
            sums, total = read(phi_q, S, z)
        return (sums / denominator(total))[:, :, -T:]

    cut_up = chosen.name == "eager" and chunks.in_chunks(k, features.width, chosen)
    if features.decays and q.dtype == torch.float16:  # factors of e^RANGE are beyond its numbers
        cut_up = False
    if not (cut_up and (beside or not mask.causal) and q.numel() and v.numel()):
        return plain(q, k, v, extra, rise, *weights)
    how = ScanRequest(features, denominator, mask, kept, chosen)
    scan = partial(chunks.run, ChunkedScan, how)
    return twice_differentiable(scan, plain, q, k, v, extra, rise, *weights)


def family(decays: bool) -> str:
    """Key in the table of implementations."""
    return "decayed linear" if decays else "linear"


def _to_end(log_decay: Float[Tensor, "B H S"]) -> Float[Tensor, "B H S"]:
    """The decay of each key between itself and the last."""
    G = log_decay.cumsum(-1)
    return exp(G[..., -1:] - G)


def summed(phi_k: Float[Tensor, "B H S M"], v: Float[Tensor, "B H S V"]) -> tuple[Tensor, Tensor]:
    """The state (S [B H M V], z [B H M]) of all keys."""
    return phi_k.transpose(-1, -2) @ v, phi_k.sum(2)


def _raised(
    S: Float[Tensor, "B H M V"],
    z: Float[Tensor, "B H M"],
    floor: Float[Tensor, "B H"],
    v: Float[Tensor, "B H S V"],
    mask: Mask,
) -> tuple[Tensor, Tensor]:
    """The sums of keys with `floor` added to all features, which all have a share in its gradient: beyond float16."""
    one = v.new_ones(v.shape[0], 1, v.shape[2], 1, dtype=floor.dtype)
    one, floor = present(one, mask.valid), floor[..., None]
    more = one.mT @ v.to(floor.dtype)
    S, of = S + (floor[..., None] * more), S.dtype
    return S.to(of), (z + floor * one.sum(2)).to(of)


def read(
    phi_q: Float[Tensor, "B H T M"], S: Float[Tensor, "B H M V"], z: Float[Tensor, "B H M"]
) -> tuple[Tensor, Tensor]:
    """Numerator [B H T V] and denominator [B H T 1]."""
    return phi_q @ S, phi_q @ z[..., None]


def causal_sums(
    phi_q: Float[Tensor, "B H T M"],
    phi_k: Float[Tensor, "B H T M"],
    v: Float[Tensor, "B H T V"],
    S: Float[Tensor, "B H M V"] | None = None,
    z: Float[Tensor, "B H M"] | None = None,
    *,
    log_decay: Float[Tensor, "B H T"] | None = None,
    impl: Impl = "auto",
    donate: bool = False,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Numerator [B H T V], denominator [B H T 1], and the state after them, from the state before (none: zero).

    log_decay (<= 0): what the state is multiplied by, in log, just before each token is added. One token is always
    eager's. donate: the state after one token may lie where the state before it lay.
    """
    if v.shape[2] == 1 and S is not None and z is not None:
        S, z = _after_one(phi_k, v, S, z, log_decay, is_ours(donate, S, phi_k, v))
        return *read(phi_q, S, z), S, z
    chosen = choose(family(log_decay is not None), impl, v, Mask(causal=True))
    return _sums(chosen, phi_q, phi_k, v, S, z, log_decay=log_decay)


def _after_one(
    phi_k: Float[Tensor, "B H 1 M"],
    v: Float[Tensor, "B H 1 V"],
    S: Float[Tensor, "B H M V"],
    z: Float[Tensor, "B H M"],
    log_decay: Float[Tensor, "B H 1"] | None,
    ours: bool,
) -> tuple[Tensor, Tensor]:
    """A decoding step: few operations, since each costs more than its numbers."""
    if not ours:
        S, z = S.clone(), z.clone()
    if log_decay is not None and not _is_zero(log_decay):
        decay = log_decay.exp().to(S.dtype)
        S, z = S.mul_(decay[..., None]), z.mul_(decay)
    return S.addcmul_(phi_k.mT, v), z.add_(phi_k[:, :, 0])


def _is_zero(log_decay: Tensor) -> bool:
    """True if a stabiliser has not moved (as after most tokens) and reading it needs no device sync."""
    return readable(log_decay) and not log_decay.requires_grad and not log_decay.any()


def _eager_sums(
    chunk: int,
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    S: Tensor | None,
    z: Tensor | None,
    log_decay: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    B, H, T, M = phi_q.shape
    S = phi_k.new_zeros(B, H, M, v.shape[-1]) if S is None else S
    z = phi_k.new_zeros(B, H, M) if z is None else z
    C = min(chunk if M <= 2 * chunk else 2 * chunk, T)  # larger where states are
    v = torch.cat([v, v.new_ones(B, H, T, 1)], dim=-1)  # numerator and denominator in one product
    phi_q, phi_k, v = (_in_chunks(a, C) for a in (phi_q, phi_k, v))
    state = torch.cat([S, z[..., None]], dim=-1)
    weights = phi_q @ phi_k.transpose(-1, -2)
    if log_decay is None:
        before, after = _summed_so_far(state, phi_k.transpose(-1, -2) @ v)
        inside = weights.tril_() @ v
        sums = torch.baddbmm(*(a.flatten(0, 2) for a in (inside, phi_q, before)))
    else:
        G = _in_chunks(log_decay[..., None], C)[..., 0].cumsum(3)  # restarts in every chunk
        later = torch.ones(C, C, dtype=torch.bool, device=G.device).triu(1)
        apart = (G[..., :, None] - G[..., None, :]).masked_fill_(later, -torch.inf)
        to_end = v * (G[..., -1:] - G).exp().to(v.dtype)[..., None]
        gain = phi_k.transpose(-1, -2) @ to_end
        before, after = chunks.decayed(state, gain, G[..., -1, None])
        inside = (weights * apart.exp_().to(weights.dtype)) @ v
        sums = inside + phi_q @ before * G.exp().to(v.dtype)[..., None]
    sums = sums.reshape(B, H, -1, sums.shape[-1])[:, :, :T]
    return sums[..., :-1], sums[..., -1:], after[..., :-1], after[..., -1]


def _sums(
    chosen: Cut,
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    S: Tensor | None = None,
    z: Tensor | None = None,
    *,
    log_decay: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    given = phi_q, phi_k, v, S, z, log_decay
    if chosen.name == "fla":
        plain = partial(_eager_sums, chosen.chunk)
        sums, total, S, z = twice_differentiable(fla.causal_sums, plain, *given)
        return sums, total, S, z
    return _eager_sums(chosen.chunk, *given)


def _in_chunks(a: Tensor, C: int) -> Tensor:
    rest = -a.shape[2] % C
    return (F.pad(a, (0, 0, 0, rest)) if rest else a).unflatten(2, (-1, C))


def _summed_so_far(
    state: Float[Tensor, "B H M V"], gain: Float[Tensor, "B H N M V"]
) -> tuple[Tensor, Tensor]:
    """States before every chunk and after the last; added in float32 at least."""
    wide = torch.promote_types(gain.dtype, torch.float32)
    before = torch.cat([state[:, :, None], gain[:, :, :-1]], dim=2).cumsum(2, dtype=wide)
    return before.to(gain.dtype), (before[:, :, -1] + gain[:, :, -1]).to(state.dtype)


def on_one_timeline(
    phi_q: Tensor,
    phi_k: Tensor,
    v: Tensor,
    log_decay: Tensor | None,
    mask: Mask,
    *,
    absent: float = 0.0,
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """Queries and keys padded in front to one length, the last query beside the last key; `absent` is the padding's phi_k."""
    T, S = phi_q.shape[2], phi_k.shape[2]
    if (
        mask.shift is not None
    ):  # rows of different lengths: bring each row's last key to the last column
        count = mask.shift + T
        order = (torch.arange(S, device=count.device) + count[:, None]) % S
        phi_k, v = permute(phi_k, order, dim=2), permute(v, order, dim=2)
        log_decay = None if log_decay is None else permute(log_decay, order, dim=2)
    if T < S:
        phi_q = F.pad(phi_q, (0, 0, S - T, 0))
    elif S < T:
        phi_k = F.pad(phi_k, (0, 0, T - S, 0), value=absent)
        v = F.pad(v, (0, 0, T - S, 0))
        log_decay = None if log_decay is None else F.pad(log_decay, (T - S, 0))
    return phi_q, phi_k, v, log_decay


def kernel_weights(
    phi_q: Float[Tensor, "B H T M"],
    phi_k: Float[Tensor, "B H S M"],
    *,
    mask: Mask = OPEN,
    log_decay: Float[Tensor, "B H S"] | None = None,
    denominator: Denominator = positive,
) -> Float[Tensor, "B H T S"]:
    """The weights that the sums above amount to."""
    T, S = phi_q.shape[2], phi_k.shape[2]
    weights = phi_q @ phi_k.transpose(-1, -2)
    if log_decay is not None:
        G = log_decay.cumsum(2)
        last = mask.last_key(T, S, G.device).clamp(min=0)[:, None].expand(*G.shape[:2], T)
        apart = G.gather(2, last)[..., None] - G[:, :, None, :]
        weights = weights * apart.clamp(max=0).exp().to(weights.dtype)
    weights = weights * mask.dense(T, S, device=phi_q.device)
    return weights / denominator(weights.sum(-1, keepdim=True))
