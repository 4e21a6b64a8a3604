"""The attention map holds the weights really used: the oracle's, through which the oracle computes its output."""

import torch

from regard.core import Mask
from regard.testing.laws.reference import ONE_SIDE
from regard.testing.subject import B, Subject, T, require, require_close


def law(subject: Subject) -> None:
    subject.require_declared("attention_map")
    if subject.oracle is None:
        subject.cannot_judge("the weights themselves: no oracle is given")
    mixer = subject.make()
    half, mask = subject.make(torch.bfloat16), Mask(causal=not subject.can.bidirectional)
    rounded = half.attention_map(subject.tokens(B, T, dtype=torch.bfloat16), mask=mask)
    require(torch.isfinite(rounded).all(), "bfloat16: the map is not finite")
    for request in subject.requests():
        x = subject.tokens(B, T)
        weights = mixer.attention_map(x, context=request.context, mask=request.mask)
        keys = T if request.context is None else request.context.shape[1]
        fits = (
            weights.dim() == 4
            and weights.shape[0] == B
            and weights.shape[2] == T
            and weights.shape[3] >= keys
        )
        require(
            fits,
            f"{request.label}: the map has shape {list(weights.shape)}, not [{B}, H, {T}, {keys}]",
        )
        require(torch.isfinite(weights).all(), f"{request.label}: the map is not finite")
        outside = ~request.mask.dense(T, keys).expand(B, weights.shape[1], T, keys)
        leaked = weights[..., -keys:][outside].abs().max() if outside.any() else torch.zeros(())
        require(leaked == 0, f"{request.label}: the map gives weight to a pair that is not allowed")
        if subject.oracle is not None and not request.label.endswith(ONE_SIDE):
            with torch.no_grad():
                _, expected = subject.consult(mixer, request, x)
            require(expected is not None, "a map is declared and the oracle has none")
            require_close(weights, expected, 1e-10, f"{request.label}: map")
