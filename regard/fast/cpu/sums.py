"""Causal sums (see `functional.linear`) that need no derivative: one chunk after the other, whose temporaries stay in cache."""

import torch

from regard.core.mask import Mask
from regard.fast.cpu.favor import unfit_sums
from regard.functional.linear import CAUSAL, CHUNK
from regard.functional.rows import Form, exp_


def attend(phi_q, phi_k, v, log_decay=None, S=None, z=None, *, mask: Mask = CAUSAL, form: Form):
    (B, H, T, M), V, C = phi_q.shape, v.shape[3], form.chunk or CHUNK
    S = v.new_zeros(B, H, M, V) if S is None else S.clone()
    z = v.new_zeros(B, H, M) if z is None else z.clone()
    y, total = torch.empty_like(v), v.new_empty(B, H, T, 1)
    own, ones = S.flatten(0, 1), z.flatten(0, 1)[..., None]  # the state, changed in place
    parts = [x.flatten(0, 1).split(C, 1) for x in (phi_q, phi_k, v, y, total)]
    decays = None if log_decay is None else log_decay.flatten(0, 1)[..., None].split(C, 1)
    for n, (a, e, w, out, weight) in enumerate(zip(*parts, strict=True)):
        A = torch.bmm(a, e.mT).tril_()
        if decays is not None:
            G = decays[n].cumsum(1)
            A *= exp_((G - G.mT).clamp_(max=0))  # above the diagonal A is zero
            a, e = a * G.exp(), e * (G[:, -1:] - G).exp_()
        torch.baddbmm(torch.bmm(A, w), a, own, out=out)
        torch.baddbmm(A.sum(2, keepdim=True), a, ones, out=weight)
        if decays is not None:
            for state in (own, ones):
                state *= G[:, -1:].exp()
        own.baddbmm_(e.mT, w)
        ones += e.sum(1)[..., None]
    return y, total, S, z


def unfit(phi_q, phi_k, v, log_decay=None, *state, mask: Mask = CAUSAL, form: Form) -> str | None:
    given = (phi_q, phi_k, v, log_decay, *state)
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in given):
        return "it has no derivative"
    if not mask.causal:
        return "sums of all keys are one product"
    return unfit_sums(phi_q, phi_k, v, phi_k.shape[3], mask, form)
