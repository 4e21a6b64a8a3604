"""The law `shards`: ranks that hold parts of the sequence give what one process gives, outputs and gradients."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.utils._pytree import tree_map_only

from regard import Mask
from regard.parallel import elements, extend, sequence, way_of
from regard.testing.subject import S, Subject, T, normal
from tests.laws.catalogue import VARIANTS, factory
from tests.parallel.simulated import Simulated, on_ranks

CUTS = {2: ((5, T - 5), (4, S - 4)), 3: ((6, 1, T - 7), (4, 1, S - 5))}
"""Lengths of the parts of x, and of a context; the middle one of three has no valid token."""


def cut(z, dim, lengths, rank):
    return None if z is None else z.narrow(dim, sum(lengths[:rank]), lengths[rank])


def gradients(y, weight, mixer, *inputs):
    (y * weight).sum().backward()
    own = [z.grad for z in inputs if z is not None]
    return own, {name: z.grad for name, z in mixer.named_parameters()}


def require_shards(subject, request, size):
    """Raise AssertionError unless `size` ranks give the outputs and gradients of one process, and send what is declared."""
    lengths, of_context = CUTS[size]
    x = subject.tokens(2, T, seed=3).requires_grad_()
    mask, context = request.mask, request.context
    keys = lengths if context is None else of_context
    if size == 3:  # there is no token in the middle part
        middle = torch.arange(keys[0], keys[0] + keys[1])
        valid = torch.ones(2, sum(keys)).bool() if mask.valid is None else mask.valid
        mask = replace(mask, valid=valid.index_fill(1, middle, False))
    if context is not None:
        context = context.detach().requires_grad_()
    mixer = subject.make()
    weight = normal(2, T, subject.dim, seed=5)
    y = mixer(x, context=context, mask=mask)
    want, of_parameters = gradients(y, weight, mixer, x, context)

    def job(ranks):
        def own(z, dim, lengths):
            part = cut(z, dim, lengths, ranks.rank)
            return part if part is None else part.detach()

        names = ("valid", "global_tokens", "documents")
        fields = {name: own(getattr(mask, name), 1, keys) for name in names}
        local = replace(mask, **fields, pairwise=own(mask.pairwise, 2, lengths))
        part = own(x, 1, lengths).requires_grad_()
        source = None if context is None else own(context, 1, of_context).requires_grad_()
        copy = deepcopy(mixer)
        with sequence(copy, ranks):
            z = copy(part, context=source, mask=local)
            forward = ranks.elements
            grads = gradients(z, own(weight, 1, lengths), copy, part, source)
        return z.detach(), *grads, (forward, ranks.elements - forward)

    *found, sent = zip(*on_ranks(size, job), strict=True)
    if context is None:
        bound = len(x) * elements(mixer, T, mask, size=size)
        forward, backward = map(max, zip(*sent, strict=True))
        assert forward <= bound and backward <= 2 * bound, "more is sent than is declared"
    close = {"rtol": 0, "atol": 1e-10}
    torch.testing.assert_close(torch.cat(found[0], 1), y, **close)
    for own, expected in zip(zip(*found[1], strict=True), want, strict=True):
        torch.testing.assert_close(torch.cat(own, 1), expected, **close)
    for name, expected in of_parameters.items():
        if expected is not None:
            parts = [grads[name] for grads in found[2] if grads[name] is not None]
            total = sum(parts, torch.zeros_like(expected))
            torch.testing.assert_close(total, expected, **close, msg=name)


def requests_of(subject, variant):
    padded = map(subject.padded, subject.orders())
    found = [*subject.requests(), *padded] if variant == "default" else subject.samples()
    documents = torch.tensor([[0] * 4 + [1] * (T - 4), [0] * 8 + [2] * (T - 8)])
    masks = {"documents": documents, "valid": torch.zeros(2, T, dtype=torch.bool)}
    return [*found, *(o.but(k, **{k: z}) for o in subject.orders() for k, z in masks.items())]


CASES = [
    pytest.param(name, variant, options, size, id=f"{name}-{variant}-{size}")
    for name, variant, options in VARIANTS
    for size in CUTS
    if size == 3 or variant == "default"
]


@pytest.mark.parametrize(("name", "variant", "options", "size"), CASES)
def test_ranks_give_what_one_process_gives(name, variant, options, size):
    subject = Subject(factory(name, options))
    assert subject.can.padding  # without it, no part may be without tokens
    for request in requests_of(subject, variant if size == 2 else "few"):
        try:
            require_shards(subject, request, size)
        except AssertionError as error:
            crossed = request.context is not None
            way = way_of(subject.make(), request.mask, cross=crossed, size=size)
            raise AssertionError(f"{request.label}, by {way}: {error}") from error


LOST = [
    ("receive", "gated_delta", -1, "state", 2),
    *(("total", name, 0, "context", 2) for name in ("linear", "efficient", "linformer")),
    ("exchange", "differential", 0, "context", 2),
    ("exchange", "local", 0, "halo", 2),
    ("exchange", "longformer", 1, "halo", 2),
    ("exchange", "softmax", 0, "heads", 3),
    ("exchange", "nystrom", 0, "tokens", 2),
]


def test_heads_are_not_exchanged_beside_what_is_put_around_a_projection():
    mixer = factory("softmax", {})()
    mixer.heads.query.register_forward_hook(lambda *_: None)
    assert way_of(mixer, size=3) != "heads"


@pytest.mark.parametrize(("method", "name", "order", "way", "size"), LOST)
def test_the_law_fails_where_what_is_sent_is_lost(method, name, order, way, size, monkeypatch):
    subject = Subject(factory(name, {}))
    request = subject.orders()[order]
    assert way_of(subject.make(), request.mask, size=size) == way
    require_shards(subject, request, size)
    sound = getattr(Simulated, method)

    def lost(ranks, *given):
        found = sound(ranks, *given)
        return tree_map_only(Tensor, lambda z: 0 * z if z.is_floating_point() else z, found)

    monkeypatch.setattr(Simulated, method, lost)
    with pytest.raises(AssertionError, match="not close"):
        require_shards(subject, request, size)


@pytest.mark.parametrize("name", ["softmax", "local", "gated_delta", "reformer", "head_groups"])
def test_the_state_after_the_last_rank_streams_on(name):
    subject = Subject(factory(name, {}))
    mixer, x, more = subject.make(), subject.tokens(2, T), subject.tokens(2, 3, seed=1)
    _, state = mixer.extend(x[:, :2], mixer.initial_state(2))

    def job(ranks):
        start = state if ranks.rank == 0 else None
        return extend(mixer, ranks, cut(x[:, 2:], 1, (4, 2, T - 8), ranks.rank), start)

    found = on_ranks(3, job)
    y, after = mixer.extend(x[:, 2:], state)
    torch.testing.assert_close(torch.cat([y for y, _ in found], 1), y, rtol=0, atol=1e-10)
    expected = mixer.extend(more, after)[0]
    torch.testing.assert_close(mixer.extend(more, found[-1][1])[0], expected, rtol=0, atol=1e-10)


def test_second_derivatives_go_through_the_exchange():
    subject = Subject(factory("gated_delta", {}))
    mixer, x = subject.make(), subject.tokens(2, T) / 2  # derivatives of 1e5 are rounded by 1e-10

    def second(part, module):
        part = part.clone().requires_grad_()
        y = module(part, mask=Mask(causal=True))
        (dx,) = torch.autograd.grad(y.square().sum(), part, create_graph=True)
        dx.square().sum().backward()
        return part.grad

    def job(ranks):
        copy = deepcopy(mixer)
        with sequence(copy, ranks):
            return second(cut(x, 1, (5, T - 5), ranks.rank), copy)

    found = torch.cat(on_ranks(2, job), 1)
    torch.testing.assert_close(found, second(x, deepcopy(mixer)), rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", sorted({name for name, *_ in VARIANTS}))
def test_what_is_declared_is_exchanged(name):
    subject = Subject(factory(name, {}))
    mixer, declared = subject.make(), subject.can.exchange
    wanted = "halo" if declared == "halo" else "context"
    for order in subject.orders():
        if declared == "halo" or (declared == "sums" and not order.mask.causal):
            assert way_of(mixer, order.mask, size=3) == wanted
        if declared and not order.mask.causal:
            assert way_of(mixer, order.mask, size=2) == wanted
