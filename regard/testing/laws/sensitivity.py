"""A pair that takes part is felt: where the weight is not zero the output depends on the key, and no key is deaf."""

from dataclasses import replace

import torch
from torch import Tensor

from regard.core import Mixer
from regard.testing.subject import Request, Subject, T, repeated, require

SEEDS = range(3)
MORE_SEEDS = range(3, 16)  # with other parameters, where a weight was zero by chance (squared relu)


def law(subject: Subject) -> None:
    mixer = subject.make()
    xs = torch.cat([subject.tokens(1, T, seed=seed) for seed in SEEDS])
    for request in subject.requests(rows=1):
        felt = influence(mixer, request, xs)
        heard = felt.any(0)
        if subject.can.attention_map:
            used = _weighted(mixer, request, xs, felt.shape[2])
            require(
                felt[used].all(),
                f"{request.label}: an output ignores a key to which it gives weight",
            )
        if request.mask.pairwise is not None and not subject.can.attention_map:
            subject.cannot_judge(
                "which pairs meet under a pairwise mask: attention_map is declared a No"
            )
            continue
        reaches = request.mask.dense(T, heard.shape[1])[0].any(0)
        if request.mask.valid is not None and request.context is None:
            reaches = reaches & request.mask.valid[0][:, None]
        if request.mask.pairwise is not None:
            reaches = reaches & _met_without_pairwise(mixer, request, xs)
        takes_part = reaches.any(0)
        if request.mask.causal and mixer.delay:
            exists = (
                torch.ones_like(takes_part) if request.mask.valid is None else request.mask.valid[0]
            )
            takes_part &= exists.cumsum(0) <= exists.sum() - mixer.delay
        globally = _met_globally(mixer, request, reaches.expand_as(heard))
        for seed in MORE_SEEDS:
            if heard.any(0)[takes_part].all() and heard[globally].all():
                break
            afresh = subject.make(seed=seed), request, subject.tokens(1, T, seed=seed)
            heard |= influence(*afresh).any(0)
        require(
            heard[globally].all(),
            f"{request.label}: an output ignores a global token, or a global token ignores a key",
        )
        require(
            heard.any(0)[takes_part].all(), f"{request.label}: no output depends on an allowed key"
        )
        if (
            not subject.can.attention_map and request.context is None
        ):  # no map says that tokens meet, so tokens must
            others = ~torch.eye(T, dtype=torch.bool)
            met = (heard & others).any(0) | ~(reaches & others).any(0)
            require(
                met[takes_part].all(),
                f"{request.label}: no output but its own depends on an allowed token",
            )


def _met_globally(mixer: Mixer, request: Request, reaches: Tensor) -> Tensor:
    """[T S]: allowed pairs of which one is a global token. Single pairs cut away, and a delay, leave none to be sure of."""
    delayed = request.mask.causal and mixer.delay > 0
    if request.mask.global_tokens is None or request.mask.pairwise is not None or delayed:
        return torch.zeros_like(reaches)
    marked = request.mask.global_tokens[0]
    return reaches & (marked[:, None] | marked[None])


def _met_without_pairwise(mixer: Mixer, request: Request, xs: Tensor) -> Tensor:
    """[T S]: pairs of the mechanism's own pattern, which the allowed pairs may miss altogether."""
    free = replace(request, mask=replace(request.mask, pairwise=None))
    S = request.mask.pairwise.shape[3] if request.mask.pairwise is not None else T
    return _weighted(mixer, free, xs, S).any(0)


def _weighted(mixer: Mixer, request: Request, xs: Tensor, keys: int) -> Tensor:
    """[R T S]: pairs with weight in any head, for R inputs xs [R T D] and a request of one row; S = keys."""
    R = len(xs)
    context = None if request.context is None else request.context.expand(R, -1, -1)
    weights = mixer.attention_map(xs, context=context, mask=repeated(request.mask, R))
    return (weights[..., -keys:] != 0).any(1)


def influence(mixer: Mixer, request: Request, xs: Tensor) -> Tensor:
    """[R T S]: does the output of query i depend on key j, for each of R inputs xs [R T D]? The request has one row.

    Every input is copied T times, and copy i is asked about its output i, so that one backward pass answers for all.
    """
    R, T, _ = xs.shape
    copies = xs.repeat_interleave(T, 0)
    source = copies if request.context is None else request.context.expand(R * T, -1, -1)
    source = source.clone().requires_grad_()
    context = None if request.context is None else source
    y = Request(request.label, repeated(request.mask, R * T), context)(
        mixer, source if context is None else copies
    )
    if not y.requires_grad:
        return torch.zeros(R, T, source.shape[1], dtype=torch.bool)
    generator = torch.Generator().manual_seed(0)
    weight = torch.randn(T, y.shape[-1], generator=generator, dtype=torch.float64)
    own = y.unflatten(0, (R, T)).diagonal(dim1=1, dim2=2).mT  # [R T D]
    (found,) = torch.autograd.grad((own * weight).sum(), [source], allow_unused=True)
    felt = torch.zeros_like(source) if found is None else found
    return (felt != 0).any(-1).unflatten(0, (R, T))
