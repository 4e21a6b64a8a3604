"""Kernel attention: a product of feature maps in the place of exp(q k), so that keys are summed once.

    y_i = phi(q_i) S_i / n(phi(q_i) z_i),   S_i = sum_j d_ij phi(k_j) v_j^T,   z_i = sum_j d_ij phi(k_j)

Bidirectional and cross: all keys, d = 1. Causal: j <= i, in chunks of C tokens, which are an axis (Katharopoulos et al. 2020, arXiv
2006.16236): a [C C] product inside each, and the state of the chunks before. With a log-decay g per token, d_ij = e^(G_i - G_j), where G
is its running sum: gates (Peng et al. 2021, arXiv 2103.02143) and the running stabiliser of FAVOR+ (Choromanski et al. 2020, arXiv
2009.14794) both have this form. Time and memory grow as T M V and T (C + M + M V / C).

A stream is the same function: S and z after some tokens are the state before the next.
"""

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core import OPEN, Keys, Mask, Mixed, Queries, TensorMap, UnsupportedError, Values
from regard.functional.cache import is_ours
from regard.functional.features import (
    Denominator,
    Favor,
    RandomKernel,
    Stabiliser,
    Total,
    elu_plus_one,
    favor_keys,
    favor_queries,
    floored,
    positive,
    present,
    signed,
    unit_features,
    unit_keys,
)
from regard.functional.rows import (
    Impl,
    choose,
    exp,
    fitted,
    in_chunks,
    in_time,
    pick,
    ranged,
    recomputed,
    unrounded,
    upto,
    wide_type,
)

Decays = Float[Tensor, "B H S"] | None  # logarithms, at most 0; None: nothing decays
Features = Float[Tensor, "B H T M"]  # of queries, or of as many keys
KeyFeatures = Float[Tensor, "B H S M"]
Sums = Float[Tensor, "B H M V"]  # of features times values
Totals = Float[Tensor, "B H M"]  # of features
Read = tuple[Tensor, Tensor, Tensor, Tensor]  # sums of the values, of the weights; S, z after them

CHUNK = 64
"""Tokens of a chunk, C; twice as many where states are larger than that."""

GROUP = 64
"""States that one product goes through."""

CAUSAL = Mask(causal=True)


def linear_attention(
    q: Queries,
    k: Keys,
    v: Values,
    *,
    mask: Mask = OPEN,
    feature_map: TensorMap = elu_plus_one,
    denominator: Denominator = positive,
    impl: Impl = "auto",
) -> Mixed:
    """Linear attention with any feature map [.. K] -> [.. M] of queries and keys. impl, here and below: see `functional.rows`."""
    q, k, values = ranged(q, k, v)
    phi_q = feature_map(q)
    phi_k = present(feature_map(k), mask.valid)
    sums, total, _, _ = chosen_sums(phi_q, phi_k, values, mask=mask, impl=impl)
    return (sums / denominator(total)).type_as(v)


def random_feature_attention(
    q: Queries,
    k: Keys,
    v: Values,
    w: Float[Tensor, "#H M K"],
    gate: Float[Tensor, "B H S"] | None = None,
    *,
    mask: Mask = OPEN,
    features: RandomKernel = "fourier",
    impl: Impl = "auto",
) -> Mixed:
    """Attention from random features of the directions of q and k. A gate, in logits, needs `mask.causal`."""
    with unrounded(q):
        q, k, values = (z.type_as(w) for z in (q, k, v))
        phi_k, g, _ = unit_keys(k, w, features, ranged(gate)[0], mask.valid)
        phi_q, phi_k, values = ranged(unit_features(q, w, features), phi_k, values)
        sums, total, _, _ = chosen_sums(phi_q, phi_k, values, g, mask=mask, impl=impl)
        return (sums / signed(total)).type_as(v)


def favor_attention(
    q: Queries,
    k: Keys,
    v: Values,
    w: Float[Tensor, "#H M K"],
    *,
    mask: Mask = OPEN,
    features: Favor = "positive",
    stabiliser: Stabiliser = "strict",
    impl: Impl = "auto",
) -> Mixed:
    """FAVOR+: softmax attention through random features with projection `w`, one for all heads or one for each.

    Raises UnsupportedError for causal order with the published stabiliser.
    """
    if stabiliser == "published" and mask.causal:
        raise UnsupportedError(
            "favor_attention does not support causal with stabiliser='published': its maximum over all keys looks "
            "ahead. Use stabiliser='strict'."
        )

    def plain(q, k, v, w, *, mask, features, stabiliser) -> Tensor:
        phi_k, g, _ = favor_keys(k, w, features, stabiliser, causal=mask.causal, valid=mask.valid)
        phi_q = favor_queries(q, w, features, stabiliser, causal=mask.causal)
        weigh = choose("causal sums", weighted_sums, impl, chunk=CHUNK)
        sums, total, _, _ = weigh(phi_q, phi_k, v, g, mask=mask)
        return sums / floored(total)

    how = {"mask": mask, "features": features, "stabiliser": stabiliser}
    with unrounded(q):
        given = [z.to(ranged(q)[0].dtype) for z in (q, k, v, w)]
        return choose("favor", plain, impl)(*given, **how).type_as(v)


def weighted_sums(
    phi_q: Features,
    phi_k: KeyFeatures,
    v: Values,
    log_decay: Decays = None,
    S: Sums | None = None,
    z: Totals | None = None,
    *,
    mask: Mask = CAUSAL,
    chunk: int = CHUNK,
) -> Read:
    """Sums of the values [B H T V] and of the weights [B H T 1], and the state S, z after them, from that before (none: zero).

    phi_k: zero where there is no key. log_decay (<= 0), in causal order: what the state is multiplied by, in log, just before each token
    is added.
    """
    if not mask.causal:
        S, z = summed(phi_k, v)
        return *read(phi_q, S, z), S, z
    T, M = phi_q.shape[2:]
    V = v.shape[3]
    with unrounded(v):
        phi_q, phi_k = phi_q.type_as(v), phi_k.type_as(v)
        if T != v.shape[2] or mask.shift is not None:
            phi_k, v, log_decay, S, z = _beside_queries(phi_k, v, log_decay, T, mask)
        v = F.pad(v, (0, 1), value=1.0)  # both sums in one product
        if S is None or z is None:
            state = v.new_zeros(*v.shape[:2], M, V + 1)
        else:
            state = torch.cat([S, z[..., None]], -1)
        C = fitted(chunk if M <= 2 * chunk else 2 * chunk, T)
        a, e, v = (in_chunks(x, C) for x in (phi_q, phi_k, v))
        if log_decay is None:
            states, last = accumulated(state, e.mT @ v)
            sums = (a @ e.mT).tril() @ v + a @ states
        else:
            d = in_chunks(log_decay[..., None], C)
            G = d.cumsum(3, dtype=wide_type(d))  # B H N C 1: from the start of each chunk
            inside, gain = recomputed(_inside, a, e, v, G)
            states, last = accumulated(state, gain, G[:, :, :, -1])
            sums = inside + (a * exp(G).type_as(a)) @ states
        sums, total = sums.flatten(2, 3)[:, :, :T].split([V, 1], -1)
        return sums, total, last[..., :V], last[..., V]


def _inside(a: Tensor, e: Tensor, v: Tensor, G: Tensor) -> tuple[Tensor, Tensor]:
    """What the queries of each chunk read of its own keys, and what these add to the state after it."""
    later = G.new_ones(G.shape[3], G.shape[3], dtype=torch.bool).triu(1)
    A = (a @ e.mT).tril() * exp((G - G.mT).masked_fill(later, 0)).type_as(a)
    return A @ v, e.mT @ (v * exp(G[:, :, :, -1:] - G).type_as(v))


def chosen_sums(
    phi_q: Features,
    phi_k: KeyFeatures,
    v: Values,
    log_decay: Decays = None,
    S: Sums | None = None,
    z: Totals | None = None,
    *,
    mask: Mask = CAUSAL,
    impl: Impl,
    donate: bool = False,
) -> Read:
    """`weighted_sums`, or what replaces it. donate: the state after one token may be where the state before it was."""
    if phi_q.shape[2] > 1 or S is None or z is None:
        sums = choose("causal sums", weighted_sums, impl, chunk=CHUNK)
        return sums(phi_q, phi_k, v, log_decay, S, z, mask=mask)
    # A decoding step: few operations, since each costs more than its numbers.
    ours, k = is_ours(donate, S, phi_k, v), phi_k[:, :, 0]
    if log_decay is not None:
        decay = log_decay.exp().type_as(S)
        each = decay[..., None]
        S, z = (S.mul_(each), z.mul_(decay)) if ours else (S * each, z * decay)
    if ours:
        S, z = S.addcmul_(phi_k.mT, v), z.add_(k)
    else:
        S, z = S.addcmul(phi_k.mT, v), z + k
    return *read(phi_q, S, z), S, z


def turned_sums(
    phi_q: Features,
    phi_k: Features,
    v: Float[Tensor, "B H T V"],
    a: Features,
    e: Features,
    S: Sums | None,
    z: Totals | None,
    *,
    causal: bool,
    impl: Impl,
) -> Read:
    """`weighted_sums`, where the numerator has turned features a and e (Su et al. 2021, arXiv 2104.09864, 3.3).

    Turned features may be negative, so that those of the denominator, and z, are left as they are.
    """
    if not causal:
        S, z = summed(e, v)[0], phi_k.sum(2)
        return read(a, S, z)[0], read(phi_q, S[..., :0], z)[1], S, z
    empty = None if S is None else S[..., :0]
    sums, _, S, _ = chosen_sums(a, e, v, None, S, z, impl=impl)
    _, total, _, z = chosen_sums(phi_q, phi_k, v[..., :0], None, empty, z, impl="plain")
    return sums, total, S, z


def summed(phi_k: KeyFeatures, v: Values, log_decay: Decays = None) -> tuple[Sums, Totals]:
    """S and z of all keys, as after the last."""
    if log_decay is not None:
        G = log_decay.cumsum(-1, dtype=wide_type(log_decay))
        phi_k = phi_k * exp(G[..., -1:] - G).type_as(phi_k)[..., None]
    phi_k = phi_k.type_as(v)
    with unrounded(v):
        return phi_k.mT @ v, phi_k.sum(2)


def read(phi_q: Features, S: Sums, z: Totals) -> tuple[Mixed, Total]:
    """Sums of the values, and of the weights."""
    phi_q = phi_q.type_as(S)
    with unrounded(S):
        return phi_q @ S, phi_q @ z.type_as(S)[..., None]


def accumulated(
    state: Sums, gain: Float[Tensor, "B H N M V"], log_decay: Float[Tensor, "B H N R"] | None = None
) -> tuple[Float[Tensor, "B H N M V"], Sums]:
    """States S_n = exp(d_n) S_(n-1) + gain_n, before every chunk and after the last; no decay: d = 0. R = 1, or M for one of each row.

    With a decay: in groups, and then over the groups, so that no axis is walked and no product is wider than N / GROUP.
    """
    sources = torch.cat([state[:, :, None], gain[:, :, :-1]], 2)
    if log_decay is None:
        wide = torch.promote_types(gain.dtype, torch.float32)
        before = sources.cumsum(2, dtype=wide).type_as(gain)
        return before, (before[:, :, -1] + gain[:, :, -1]).type_as(state)
    d = F.pad(log_decay[:, :, :-1].to(wide_type(gain)), (0, 0, 1, 0))
    N, R = d.shape[2:]
    C = fitted(GROUP, N)
    d = in_chunks(d, C)
    x = in_chunks(sources.flatten(3), C).unflatten(4, gain.shape[3:])
    inside = _products(x, d)
    ends = _products(inside[:, :, :, -1], d.sum(3))
    carried = F.pad(ends[:, :, :-1], (0, 0, 0, 0, 1, 0))[:, :, :, None].unflatten(4, (R, -1))
    carried = (carried * d.cumsum(3).exp().type_as(gain)[..., None, None]).flatten(4, 5)
    before = in_time(inside + carried, N).type_as(gain)
    kept = log_decay[:, :, -1].exp().type_as(gain)[..., None, None]
    last = (kept * before[:, :, -1].unflatten(2, (R, -1))).flatten(2, 3) + gain[:, :, -1]
    return before, last.type_as(state)


def _products(
    sources: Float[Tensor, "*b N M V"], log_decay: Float[Tensor, "*b N R"]
) -> Float[Tensor, "*b N M V"]:
    """S_n = sum_(m <= n) exp(d_(m+1) + .. + d_n) sources_m; exponents are sums of d <= 0, never differences."""
    N, R = log_decay.shape[-2:]
    d = log_decay.mT
    ahead = d.new_ones(N, N, dtype=torch.bool).tril(-1)
    apart = torch.where(ahead, d[..., None], 0).cumsum(-2)  # R n m
    factors = apart.masked_fill(ahead.mT, -torch.inf).exp()
    x = sources.type_as(d).unflatten(-2, (R, -1)).movedim(-3, -4)  # R N M/R V
    return (factors @ x.flatten(-2)).view_as(x).movedim(-4, -3).flatten(-3, -2).type_as(sources)


def _beside_queries(
    phi_k: Tensor, v: Tensor, log_decay: Tensor | None, T: int, mask: Mask
) -> tuple[Tensor, Tensor, Tensor | None, Tensor, Tensor]:
    """The last key that each query sees, its value and decay, and the sums S, z of the keys that all queries see."""
    last = mask.last_key(T, v.shape[2], v.device)  # b T; below 0: none
    all_see = upto(v.shape[2], v) < last[:, :1]
    g = None if log_decay is None else present(log_decay, all_see)
    before = summed(present(phi_k, all_see), v, g)
    at, seen = last.clamp_min(0), last >= 0
    g = None if log_decay is None else present(pick(log_decay[..., None], at)[..., 0], seen)
    return present(pick(phi_k, at), seen), pick(v, at), g, *before
