"""Every pair that takes part is felt, and no pair that is cut."""

from dataclasses import replace

import torch
from torch import Tensor

from regard.core import Mixer
from regard.testing.subject import Request, S, Subject, T, normal, repeated, require

SEEDS = range(3)
MORE_SEEDS = range(3, 16)  # with other parameters, where a weight was zero by chance (squared relu)


def sensitivity(subject: Subject) -> None:
    """A pair that takes part is felt: where the weight is not zero the output depends on the key, and no key is deaf."""
    mixer = subject.make()
    xs = torch.cat([subject.tokens(1, T, seed=seed) for seed in SEEDS])
    for request in subject.requests(rows=1):
        felt = influence(mixer, request, xs)
        if subject.can.attention_map:
            require(
                felt[_weighted(mixer, request, xs, felt.shape[2])].all(),
                f"{request.label}: an output ignores a key to which it gives weight",
            )
        elif request.mask.pairwise is not None:
            subject.cannot_judge(
                "which pairs meet under a pairwise mask: attention_map is declared a No"
            )
            continue
        _no_key_is_deaf(subject, mixer, request, xs, felt.any(0))


def _no_key_is_deaf(
    subject: Subject, mixer: Mixer, request: Request, xs: Tensor, heard: Tensor
) -> None:
    """heard [T S]: pairs that were felt in any of the inputs xs [R T D]."""
    mask = request.mask
    reaches = mask.dense(T, heard.shape[1])[0].any(0)
    if mask.valid is not None and request.context is None:
        reaches = reaches & mask.valid[0][:, None]
    if mask.pairwise is not None:  # the mechanism's own pattern may miss all allowed pairs
        free = replace(request, mask=replace(mask, pairwise=None))
        reaches = reaches & _weighted(mixer, free, xs, mask.pairwise.shape[3]).any(0)
    takes_part = reaches.any(0)
    delay = mixer.delay if mask.causal else 0
    if delay:
        exists = torch.ones_like(takes_part) if mask.valid is None else mask.valid[0]
        takes_part &= exists.cumsum(0) <= exists.sum() - delay
    globally = torch.zeros_like(heard)
    if mask.global_tokens is not None and mask.pairwise is None and not delay:
        # Single pairs cut away, and a delay, leave none to be sure of.
        marked = mask.global_tokens[0]
        globally = reaches & (marked[:, None] | marked[None])
    for seed in MORE_SEEDS:
        if heard.any(0)[takes_part].all() and heard[globally].all():
            break
        heard |= influence(subject.make(seed=seed), request, subject.tokens(1, T, seed=seed)).any(0)
    what = f"{request.label}: an output ignores a global token, or a global token ignores a key"
    require(heard[globally].all(), what)
    what = f"{request.label}: no output depends on an allowed key"
    require(heard.any(0)[takes_part].all(), what)
    if not subject.can.attention_map and request.context is None:
        # No map says that tokens meet, so tokens must.
        others = ~torch.eye(T, dtype=torch.bool)
        met = (heard & others).any(0) | ~(reaches & others).any(0)
        what = f"{request.label}: no output but its own depends on an allowed token"
        require(met[takes_part].all(), what)


def isolation(subject: Subject) -> None:
    """A pair that the masks forbid is not felt, directly, and those of each head are its own; this needs no oracle."""
    subject.require_declared("pairwise")
    mixer = subject.make()
    x = subject.tokens(1, T)
    for request in subject.requests(rows=1):
        if request.mask.pairwise is None:
            continue
        alone = request.context is None  # a query comes from its own token
        forbidden = ~request.mask.dense(T, T if alone else S)[0].any(0)
        if alone:
            forbidden.fill_diagonal_(False)
        felt = influence(mixer, request, x)[0]
        require(not felt[forbidden].any(), f"{request.label}: a forbidden pair is felt")
        _heads_have_their_own(mixer, request, x, request.mask.pairwise)


@torch.no_grad()
def _heads_have_their_own(mixer: Mixer, request: Request, x: Tensor, pairs: Tensor) -> None:
    """A head that loses all of its pairs changes the output."""
    y = request(mixer, x)
    for head in range(pairs.shape[1]):
        less = pairs.index_fill(1, torch.tensor([head]), False)
        moved = not torch.equal(request.but("", pairwise=less)(mixer, x), y)
        require(moved, f"{request.label}: the pairs of head {head} change nothing")


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
    source = source.detach().clone().requires_grad_()
    mask = repeated(request.mask, R * T)
    if request.context is None:
        y = mixer(source, mask=mask)
    else:
        y = mixer(copies, context=source, mask=mask)
    own = y.unflatten(0, (R, T)).diagonal(dim1=1, dim2=2).mT  # [R T D]
    weight = normal(*own.shape[1:])
    found = torch.zeros_like(source)
    if y.requires_grad:
        (found,) = torch.autograd.grad((own * weight).sum(), [source], materialize_grads=True)
    return (found != 0).any(-1).unflatten(0, (R, T))
