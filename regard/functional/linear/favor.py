"""FAVOR+: softmax attention through positive random features (Choromanski et al. 2020, arXiv 2009.14794).

    phi(x) = exp(w x - |x|^2 / 2 - c),   E phi(q) phi(k) = exp(q k / sqrt(K) - c_q - c_k),   x = q / K^(1/4), w ~ N(0, I)

"hyperbolic" features add exp(-w x - |x|^2 / 2 - c). Generalised kernels: f(w x) + 1e-3 with "relu" or any function f >= 0. The factor
M^(-1/2) of the paper cancels in the quotient, and so does c, a maximum that keeps exponents <= 0. Queries: over the
token's features. Keys, in causal order: over features and positions so far, so that a sum made under a smaller c decays
when c grows; nothing is added to the features. Keys otherwise: over features and valid positions, and 1e-6, which is not in
the paper, is added to all features. It keeps c from cancelling, which then has a gradient: that of keys is the gradient of 1e-6 e^c.
c is the maximum of w x - |x|^2 / 2. stabiliser="published" subtracts the maximum of w x and adds 1e-6, as the published code does.
"""

from collections.abc import Callable
from functools import partial
from typing import Literal

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float
from torch import Tensor

from regard.core.errors import UnsupportedError
from regard.core.mask import OPEN, Mask
from regard.functional.linear import chunked as attention
from regard.functional.linear.attention import feature_attention, kernel_attention
from regard.functional.linear.chunked import KeyFeatures
from regard.functional.shared.blocks import tiles
from regard.functional.shared.implementation import Impl, cut, loses_backward
from regard.functional.shared.numerics import wide_type

Features = Literal["positive", "hyperbolic", "relu"] | Callable[[Tensor], Tensor]
Stabiliser = Literal["strict", "published"]

EPS = 1e-6
KERNEL_EPS = 1e-3
FORGOTTEN = (
    -104.0
)  # exp of it is zero in float32; a larger decay would cost the digits of the smaller ones near it


def favor_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H S K"],
    v: Float[Tensor, "B H S V"],
    w: Float[Tensor, "h M K"],
    *,
    mask: Mask = OPEN,
    features: Features = "positive",
    stabiliser: Stabiliser = "strict",
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Attention from random features with projection `w`, one for all heads or one for each. impl: see `implementation`.

    Raises UnsupportedError for causal order with the published stabiliser.
    """
    if stabiliser == "published":
        if mask.causal:
            raise UnsupportedError(
                "favor_attention does not support causal with stabiliser='published': its maximum over all keys looks "
                "ahead. Use stabiliser='strict'."
            )
        phi_q, phi_k = published_queries(q, w, features), published_keys(k, w, features, mask.valid)
        return kernel_attention(phi_q, phi_k, v, mask=mask, denominator=floored, impl=impl)

    def queries(q: Tensor, w: Tensor) -> Tensor:
        return _query_features(q, w, features, cancels=mask.causal)

    def keys(before: Tensor | None, k: Tensor, valid: Tensor | None, extra: None, w: Tensor):
        return KeyFeatures(*key_features(k, w, features, causal=True, valid=valid, before=before))

    width = w.shape[1] * (2 if features == "hyperbolic" else 1)
    exponential = kernel_of(features) is None
    floor, rise = 0.0, None
    if exponential and not mask.causal:
        floor, rise = EPS, _rise(k, w, features, mask.valid, impl)
    hand_written = None
    if features == "positive":
        by_hand = partial(_queries_by_hand, cancels=mask.causal)
        hand_written = attention.HandWritten(by_hand, _keys_by_hand)
    made = attention.Features(
        width, queries, keys, floor, decays=exponential, hand_written=hand_written
    )
    return feature_attention(q, k, v, made, w, mask=mask, rise=rise, denominator=floored, impl=impl)


def kernel_of(features: Features) -> Callable[[Tensor], Tensor] | None:
    """f of a generalised kernel; None where exponentials estimate softmax."""
    return F.relu if features == "relu" else features if callable(features) else None


def floored(total: Float[Tensor, "B H T 1"]) -> Float[Tensor, "B H T 1"]:
    """Nothing is added; a denominator that has vanished gives zero."""
    return total.clamp_min(torch.finfo(total.dtype).tiny ** 0.8)


def lowest(dtype: torch.dtype) -> float:
    """A maximum over nothing: finite, so that differences are numbers."""
    return torch.finfo(dtype).min / 2


def query_features(
    q: Float[Tensor, "B H T K"], w: Float[Tensor, "h M K"], features: Features, *, causal: bool
) -> Float[Tensor, "B H T m"]:
    phi = _query_features(q, w, features, cancels=causal)
    return phi if causal or kernel_of(features) is not None else phi + EPS


def _query_features(
    q: Float[Tensor, "B H T K"], w: Float[Tensor, "h M K"], features: Features, *, cancels: bool
) -> Float[Tensor, "B H T m"]:
    """Nothing is added to exponentials. cancels: no factor of a token's features matters, nor its gradient."""
    wx = _projected(q, w, features)
    kernel = kernel_of(features)
    if kernel is not None:
        return kernel(wx) + KERNEL_EPS
    peak = (wx.detach() if cancels else wx).amax(-1, keepdim=True)
    return (wx - peak).exp_().to(q.dtype)  # |x|^2 / 2 is in both


def key_features(
    k: Float[Tensor, "B H S K"],
    w: Float[Tensor, "h M K"],
    features: Features,
    *,
    causal: bool,
    valid: Bool[Tensor, "B S"] | None = None,
    before: Float[Tensor, "B H"] | None = None,
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Features, zero where not valid; in causal order also log_decay [B H S] and the maximum after them, c [B H].

    before: the maximum over the tokens that came earlier (none: there are none).
    """
    wx = _projected(k, w, features)
    present = None if valid is None else valid[:, None, :]
    log_decay = after = None
    kernel = kernel_of(features)
    if kernel is not None:
        phi = kernel(wx) + KERNEL_EPS
        after = before
    else:
        half, level, top = _levels(k, wx)
        top = top if present is None else top.masked_fill(~present, lowest(top.dtype))
        if causal:
            c, log_decay = _running_maximum(top, before)
            after = c[:, :, -1]
        else:
            c = top.amax(-1, keepdim=True)
        level = level + (c - top)
        level = level if present is None else level.masked_fill(~present, torch.inf)
        if torch.is_grad_enabled() or loses_backward():
            phi = _exponential(wx, half, level)
        else:
            phi = wx.sub_(level[..., None]).exp_()
        phi = phi if causal else phi + EPS * _rise(k, w, features, valid)[..., None, None].exp()
    phi = phi if present is None else phi * present[..., None]
    return phi.to(k.dtype), log_decay, after


def published_queries(
    q: Float[Tensor, "B H T K"], w: Float[Tensor, "h M K"], features: Features
) -> Float[Tensor, "B H T m"]:
    wx = _projected(q, w, features)
    return _published(q, wx, wx.amax(-1, keepdim=True))


def published_keys(
    k: Float[Tensor, "B H S K"],
    w: Float[Tensor, "h M K"],
    features: Features,
    valid: Bool[Tensor, "B S"] | None,
) -> Float[Tensor, "B H S m"]:
    """Features, zero where not valid; one maximum for each example and head."""
    wx = _projected(k, w, features)
    present = None if valid is None else valid[:, None, :, None]
    peaks = wx if present is None else wx.masked_fill(~present, lowest(wx.dtype))
    peak = peaks.amax((-2, -1), keepdim=True)
    if present is None:
        return _published(k, wx, peak)
    return _published(k, wx.masked_fill(~present, -torch.inf), peak).masked_fill(~present, 0.0)


def _rise(
    k: Float[Tensor, "B H S K"],
    w: Float[Tensor, "h M K"],
    features: Features,
    valid: Bool[Tensor, "B S"] | None,
    impl: Impl = "auto",
) -> Float[Tensor, "B H"]:
    """c - c', with c' = c a constant: the features exp(e - c') + 1e-6 e^(c - c') are those under c but for a factor that cancels."""
    if not (torch.is_grad_enabled() or loses_backward()) or not k.numel():
        return k.new_zeros(k.shape[:2], dtype=wide_type(k))
    how, top = cut("decayed linear", impl, k), []
    for rows in tiles(k.shape[2], how.tile if how.tiled else k.shape[2]):
        some = k.detach()[:, :, rows]
        top.append(_levels(some, _projected(some, w.detach(), features))[2])
    highest = torch.cat(top, dim=-1)
    if valid is not None:
        highest = highest.masked_fill(~valid[:, None], lowest(highest.dtype))
    at = highest.argmax(-1)[..., None, None].expand(*k.shape[:2], 1, k.shape[3])
    token = k.gather(2, at)
    wx = _projected(token, w, features)
    half, _, _ = _levels(token, wx)
    c = (wx.amax(-1) - half)[..., 0]
    return c - c.detach()


def _published(x: Tensor, wx: Tensor, peak: Tensor) -> Tensor:
    half = x.to(wx.dtype).square().sum(-1, keepdim=True) / (2 * x.shape[-1] ** 0.5)
    return ((wx - half - peak).exp() + EPS).to(x.dtype)


def _projected(x: Tensor, w: Tensor, features: Features) -> Float[Tensor, "B H T M"]:
    """w x of the scaled tokens, in float32 at least where exponentials are to be taken."""
    x = x * x.shape[-1] ** -0.25
    if x.shape[2] == w.shape[0] == 1:  # one token, and one matrix for all its heads
        wx = F.linear(x, w[0])
    else:
        wx = x @ w.transpose(-1, -2)
    if kernel_of(features) is not None:
        return wx
    wx = wx.to(torch.promote_types(x.dtype, torch.float32))
    return torch.cat([wx, -wx], dim=-1) if features == "hyperbolic" else wx


def _levels(
    x: Float[Tensor, "B H T K"], wx: Float[Tensor, "B H T M"]
) -> tuple[Tensor, Tensor, Tensor]:
    """|x|^2 / 2 of the scaled token; what to subtract from w x so that its largest exponent is zero; that exponent.

    All [B H T]. The second is max w x, and not |x|^2 / 2 + (max w x - |x|^2 / 2), a sum that would lose its digits.
    """
    half = x.to(wx.dtype).square().sum(-1) / (2 * x.shape[-1] ** 0.5)
    peak = wx.detach().amax(-1)
    return half, peak, peak - half.detach()


def _exponential(
    wx: Float[Tensor, "B H T M"], half: Float[Tensor, "B H T"], level: Float[Tensor, "B H T"]
) -> Float[Tensor, "B H T M"]:
    """exp(w x - level), whose gradient is that of exp(w x - |x|^2 / 2 - c)."""
    if loses_backward():
        return (wx - (half - half.detach() + level)[..., None]).exp()
    return _Exponential.apply(wx, half, level)


class _Exponential(torch.autograd.Function):
    """exp(w x - |x|^2 / 2 - c), from the value of |x|^2 / 2 + c; its gradients in one pass over phi and one sum."""

    @staticmethod
    def forward(ctx, wx, half, level):
        phi = (wx - level[..., None]).exp_()
        ctx.save_for_backward(phi)
        return phi

    @staticmethod
    def backward(ctx, dphi):
        (phi,) = ctx.saved_tensors
        dwx = dphi * phi
        return dwx, -dwx.sum(-1), None


def _exponential_by_hand(
    x: Float[Tensor, "b H T K"],
    w: Float[Tensor, "h M K"],
    level_of: Callable[[Tensor], Tensor],
):
    """exp(w x - level) in the place of w x, and what makes dx and dw of their gradient; level_of(max w x)."""
    root = x.shape[-1] ** -0.25
    scaled = w * root
    phi = (x @ scaled.mT).to(torch.promote_types(x.dtype, torch.float32))
    phi.sub_(level_of(phi.amax(-1))[..., None]).exp_()

    def back(dphi: Tensor, *, of_peak: bool = False):
        """of_peak: the exponent is w x - max w x, in the place of w x - |x|^2 / 2 - c."""
        place = phi.argmax(-1, keepdim=True) if of_peak else None
        dwx = phi.mul_(dphi)
        total = dwx.sum(-1, keepdim=True)
        if place is not None:
            dwx.scatter_add_(-1, place, -total)
        dwx, dhalf = dwx.to(x.dtype), total.to(x.dtype)
        dw = (dwx.mT @ x).sum_to_size(w.shape).mul(root) if w.requires_grad else None
        dx = dwx @ scaled
        return dx if of_peak else dx.addcmul_(x, dhalf, value=-root * root), dw

    return phi, back


def _queries_by_hand(q: Tensor, w: Tensor, *, cancels: bool):
    phi, back = _exponential_by_hand(q, w, lambda peak: peak)
    return phi.to(q.dtype), partial(back, of_peak=not cancels)


def _keys_by_hand(before: Tensor | None, k: Tensor, valid: Tensor | None, w: Tensor):
    found: list[Tensor] = []

    def level(peak: Tensor) -> Tensor:
        half = k.to(peak.dtype).square().sum(-1).mul_(k.shape[-1] ** -0.5 / 2)
        top, present = peak - half, None if valid is None else valid[:, None, :]
        top = top if present is None else top.masked_fill(~present, lowest(top.dtype))
        c, log_decay = _running_maximum(top, before)
        found.extend((log_decay, c[:, :, -1]))
        peak = peak + (c - top)
        return peak if present is None else peak.masked_fill(~present, torch.inf)

    phi, back = _exponential_by_hand(k, w, level)
    return KeyFeatures(phi.to(k.dtype), *found), back


def _running_maximum(
    top: Float[Tensor, "B H S"], before: Float[Tensor, "B H"] | None
) -> tuple[Tensor, Tensor]:
    """c_i = max(before, top_0 .. top_i), and what a sum under the previous c has to be multiplied by, in log."""
    none = lowest(top.dtype)
    if (
        before is not None and top.shape[2] == 1
    ):  # one maximum; a state of nothing decays to nothing
        previous = before.detach().to(top.dtype)[..., None]
        c = torch.maximum(previous, top)
        return c, (previous - c).clamp_min_(FORGOTTEN)
    start = top.new_full(top.shape[:2], none) if before is None else before.detach().to(top.dtype)
    c = torch.cat([start[..., None], top.clamp_min(none)], dim=-1).cummax(-1).values
    previous, c = c[..., :-1], c[..., 1:]
    nothing_yet = previous <= none
    return c, (previous - c).clamp_min(FORGOTTEN).masked_fill(nothing_yet, 0.0)
