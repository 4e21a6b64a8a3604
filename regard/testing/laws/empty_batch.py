"""An empty batch is a valid batch: shapes are as for any other, gradients zero, and nothing is learned from it."""

import torch
from torch.utils._pytree import tree_leaves, tree_map

from regard.core import Mixer
from regard.testing.subject import S, Subject, T, require


def law(subject: Subject) -> None:
    mixer, D = subject.make(blocks="own").train(), subject.dim
    for request in subject.requests(rows=0):
        x = subject.tokens(0, T).requires_grad_()
        y = request(mixer, x)
        require(y.shape == (0, T, D), f"{request.label}: shape {list(y.shape)}, not {[0, T, D]}")
        _backward(mixer, x, y, request.label)
        for weights in (True, False):
            seen = mixer.observe(x, context=request.context, mask=request.mask, weights=weights)
            rows = [len(z) for z in seen if z is not None]
            require(not any(rows), f"{request.label}: an observation has rows: {rows}")
    untouched = subject.make(blocks="own").train()
    mixer.after_step()
    untouched.after_step()
    for name, value in untouched.state_dict().items():
        require(torch.equal(value, mixer.state_dict()[name]), f"{name} changed")
    if subject.can.streaming:
        _streams(subject, mixer)


def _streams(subject: Subject, mixer: Mixer) -> None:
    none = mixer.initial_state(0)
    for n in (1, 5, T - 6):
        x = subject.tokens(0, n).requires_grad_()
        y, none = mixer.extend(x, none)
        require(y.shape == (0, n, subject.dim), f"extend: shape {list(y.shape)}")
        require(not any(map(len, tree_leaves(none))), f"extend by {n}: the state has rows")
        _backward(mixer, x, y, f"extend by {n}")
        none = tree_map(lambda z: z.detach(), none)
    if subject.can.padding:
        mixer.extend(x, none, valid=torch.ones(0, x.shape[1], dtype=torch.bool))
    if subject.can.cross and subject.can.streaming == "exact":
        context, valid = subject.tokens(0, S), torch.ones(0, S, dtype=torch.bool)
        for given in (None, valid) if subject.can.padding else (None,):
            y, _ = mixer.extend(x, mixer.initial_state(0, context=context, valid=given))
            require(y.shape == x.shape, f"extend over a context: shape {list(y.shape)}")


def _backward(mixer: Mixer, x: torch.Tensor, y: torch.Tensor, label: str) -> None:
    require(y.requires_grad, f"{label}: the output has no gradient")
    found = torch.autograd.grad(y.sum(), [x, *mixer.parameters()], allow_unused=True)
    zero = all(g is None or bool((g == 0).all()) for g in found)
    require(zero, f"{label}: a gradient is not zero")
