"""Transformer-XL over several segments, and as XLNet's two streams: what no law covers."""

from dataclasses import replace

import pytest
import torch

import regard
import regard.reference
from regard import Mask
from regard.mixers.transformer_xl import TransformerXL
from regard.testing.laws.streaming import feed, require_streamed
from regard.testing.subject import normal
from tests.models.small import language_model, prompts

D, H, T = 24, 3, 13
SEGMENTS = [(13,), (5, 8), (4, 1, 5, 3), (1,) * 13]


def make(**options):
    torch.manual_seed(0)
    mixer = TransformerXL(D, num_heads=H, **options).double()
    for parameter in mixer.parameters():
        parameter.data.add_(0.2 * torch.randn_like(parameter))
    return mixer


def tokens(*shape, seed=0):
    return normal(*shape, D, seed=seed)


@pytest.mark.parametrize("options", [{"mem_len": T}, {"mem_len": 4, "same_length": True}], ids=str)
@pytest.mark.parametrize("sizes", SEGMENTS, ids=str)
def test_segments_are_the_whole_sequence_where_no_token_that_counts_is_forgotten(options, sizes):
    require_streamed(make(**options), tokens(2, T), sizes, "segments", bound=1e-12)


def test_a_segment_sees_the_memory_and_itself():
    mixer, x = make(mem_len=4), tokens(2, T)
    y, _ = feed(mixer, x, mixer.initial_state(2), (8, 5))
    expected = mixer(x[:, 8:], context=x[:, 4:], mask=Mask(causal=True))
    torch.testing.assert_close(y[:, 8:], expected, rtol=0, atol=1e-12)


def test_no_gradient_flows_into_the_memory():
    mixer, x = make(mem_len=T), tokens(2, T).requires_grad_()
    _, state = mixer.extend(x[:, :6], mixer.initial_state(2))
    assert not state.memory.requires_grad
    y, _ = mixer.extend(x[:, 6:], state)
    (found,) = torch.autograd.grad(y.sum(), x)
    assert not found[:, :6].any()
    assert found[:, 6:].all()


def test_a_row_whose_length_is_zero_has_forgotten():
    mixer, x = make(mem_len=T), tokens(2, T)
    _, state = mixer.extend(x[:, :6], mixer.initial_state(2))
    y, _ = mixer.extend(x[:, 6:], replace(state, length=torch.tensor([0, 6])))
    torch.testing.assert_close(y[0], mixer(x[:, 6:], mask=Mask(causal=True))[0])
    torch.testing.assert_close(y[1], mixer(x, mask=Mask(causal=True))[1, 6:])


def test_two_streams_of_a_permutation_do_not_leak():
    """XLNet: query stream g sees earlier ranks, content stream h itself too; both read h and the memory."""
    mixer, M = make(), 3
    memory, h, g = tokens(1, M, seed=1), tokens(1, T), tokens(1, T, seed=2)
    rank = torch.randperm(T, generator=torch.Generator().manual_seed(4))
    earlier = torch.nn.functional.pad(rank[None, :] < rank[:, None], (M, 0), value=True)
    itself = torch.nn.functional.pad(torch.eye(T, dtype=torch.bool), (M, 0))

    def streams(h):
        context = torch.cat([memory, h], dim=1)
        return (
            mixer(g, context=context, mask=Mask(pairwise=earlier[None, None])),
            mixer(h, context=context, mask=Mask(pairwise=(earlier | itself)[None, None])),
        )

    query, content = streams(h)
    for t in range(T):
        moved = h.clone()
        moved[:, t] += 3.0
        new_query, new_content = streams(moved)
        assert torch.equal((new_query != query).any(-1)[0], rank > rank[t])
        assert torch.equal((new_content != content).any(-1)[0], rank >= rank[t])


def test_what_cannot_be_is_refused():
    with pytest.raises(regard.UnsupportedError, match="streaming over a context"):
        make().initial_state(1, context=tokens(1, T))
    with pytest.raises(regard.UnsupportedError, match="does not support generate"):
        language_model(mixer=TransformerXL, position="none").generate(prompts(), max_new_tokens=2)


@pytest.mark.parametrize("cross", [False, True])
def test_segments_are_related_as_in_the_oracle(cross):
    mixer = make(segments=True, clamp_len=5)
    x, context = tokens(2, T), tokens(2, 17, seed=1) if cross else None
    S = 17 if cross else T
    generator = torch.Generator().manual_seed(5)
    query, key = (torch.randint(0, 2, (2, n), generator=generator) for n in (T, S))
    mask = Mask(pairwise=torch.rand(2, 1, T, S, generator=generator) < 0.6)
    found = mixer.relate(x, query, key, context=context, mask=mask)
    params = dict(mixer.named_parameters())
    asked = {"pairwise": mask.pairwise, "plan": {"query": query, "key": key}}
    wanted, _ = regard.reference.transformer_xl(params, mixer.options, x, context=context, **asked)
    torch.testing.assert_close(found, wanted, rtol=0, atol=1e-11)
    ours, theirs = (torch.autograd.grad(y.square().sum(), params.values()) for y in (found, wanted))
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-10)


def test_segments_that_cannot_be_related_are_refused():
    x, one = tokens(2, T), torch.zeros(2, T, dtype=torch.long)
    with pytest.raises(regard.UnsupportedError, match="built without a segment term"):
        make().relate(x, one, one)
    mixer = make(segments=True)
    with pytest.raises(regard.UnsupportedError, match="Hide what is absent by"):
        mixer.relate(x, one, one, mask=Mask(valid=one == 0))
    with pytest.raises(regard.ShapeError, match=r"key_segment must be integers \[2, 13\], got"):
        mixer.relate(x, one, one[:, 1:])
