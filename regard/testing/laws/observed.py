"""What is shown is what is used: weights, values and head outputs."""

import torch
from torch import Tensor, nn

from regard.core import Mixer
from regard.testing.laws.formulas import ONE_SIDE
from regard.testing.subject import B, Request, S, Subject, T, require, require_close


@torch.no_grad()
def map(subject: Subject) -> None:
    """The attention map holds the weights really used: the oracle's, through which the oracle computes its output."""
    subject.require_declared("attention_map")
    if subject.oracle is None:
        subject.cannot_judge("the weights themselves: no oracle is given")
    mixer, x = subject.make(), subject.tokens(B, T)
    half = subject.make(torch.bfloat16).attention_map(x.bfloat16(), mask=subject.mask)
    require(torch.isfinite(half).all(), "bfloat16: the map is not finite")
    for request in subject.requests():
        weights = mixer.attention_map(x, context=request.context, mask=request.mask)
        keys, label, shape = T if request.context is None else S, request.label, [*weights.shape]
        # Learned keys come first.
        fits = len(shape) == 4 and shape[0] == B and shape[2] == T and shape[3] >= keys
        require(fits, f"{label}: the map has shape {shape}, not [{B}, H, {T}, {keys}]")
        require(torch.isfinite(weights).all(), f"{label}: the map is not finite")
        outside = ~request.mask.dense(T, keys).expand(B, shape[1], T, keys)
        leaks = weights[..., -keys:][outside].any()
        require(not leaks, f"{label}: the map gives weight to a pair that is not allowed")
        if subject.oracle is not None and not label.endswith(ONE_SIDE):
            _, expected = subject.consult(mixer, request, x)
            require(expected is not None, "a map is declared and the oracle has none")
            require_close(weights, expected, 1e-10, f"{label}: map")


@torch.no_grad()
def observed(subject: Subject) -> None:
    """Values and head outputs are observed together, alike with and without the weights, whether or not there is a map.

    Head outputs are those that a forward projects: what lies between heads and output, such as a gate, is in them.
    """
    mixer, x = subject.make(), subject.tokens(B, T)
    for request in subject.requests():
        whole, without = (
            mixer.observe(x, context=request.context, mask=request.mask, weights=kept)
            for kept in (True, False)
        )
        what = f"{request.label}: observe"
        require(without.weights is None, f"{what}(weights=False) gives weights")
        alone = "head outputs" if whole.v is None else "values"
        require((whole.v is None) == (whole.heads is None), f"{what} gives {alone} alone")
        for name in ("v", "heads"):
            one, other = getattr(without, name), getattr(whole, name)
            both = f"{what}: {name} without the weights"
            same = (one is None) == (other is None)
            require(same, f"{both} is given, or with them, and not both")
            if one is not None:
                require_close(one, other, 1e-10, both)
        reached = _projected(mixer, request, x)
        if reached is not None and whole.heads is not None and request.mask.valid is None:
            beside = whole.heads.transpose(1, 2).flatten(2)
            require_close(beside, reached, 1e-10, f"{what}: heads, and what forward projects")


def _projected(mixer: Mixer, request: Request, x: Tensor) -> Tensor | None:
    """What forward gives to the projection after its heads, if there is one."""
    out = getattr(getattr(mixer, "heads", None), "out", None)
    if not isinstance(out, nn.Module):
        return None
    seen: list[Tensor] = []
    hook = out.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    request(mixer, x)
    hook.remove()
    return seen[0]
