"""Synthesized logits, tile by tile, give what one whole matrix of weights gives."""

import pytest
import torch

from regard import Form, Mask
from regard.core import OPEN, ShapeError
from regard.functional.rows import masked_softmax
from regard.functional.synthesizer import (
    Logits,
    blended,
    outer,
    product,
    synthesizer_attention,
    table,
)
from regard.testing.counting import count

B, H, T, V, ROOM = 2, 3, 11, 5, 14  # tables and factors reach further than the sequence
VALID = torch.arange(T) < torch.tensor([[T], [6]])
PAIRS = torch.rand(B, 1, T, T, generator=torch.Generator().manual_seed(0)) < 0.6
PAIRS[0, 0, 3] = False  # a query that sees nothing
MASKS = {
    "open": Mask(),
    "causal": Mask(causal=True),
    "valid": Mask(valid=VALID),
    "causal, compact": Mask(causal=True, valid=VALID, compact=True),
    "pairwise": Mask(pairwise=PAIRS),
    "pairwise of all": Mask(pairwise=PAIRS[:1], causal=True),
    "pairwise of heads": Mask(pairwise=torch.cat([PAIRS[:1], ~PAIRS[:1], PAIRS[1:]], dim=1)),
}


def draw(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()


def tables(R):
    return Logits(table, (R,))


def products(R, C, *b):
    return Logits(product, (R,), (C, *b))


def sources():
    shared = products(draw(1, H, ROOM, 2, seed=1), draw(1, H, ROOM, 2, seed=2))
    of_token = products(draw(B, H, T, 4), draw(1, 1, ROOM, 4, seed=3), draw(1, 1, ROOM, seed=4))
    outers = Logits(outer, (draw(B, H, T, 5, seed=5), draw(B, H, T, 3, seed=6)))
    far = tables(draw(1, H, ROOM, ROOM, seed=7, scale=3.0))
    return {
        "table": far,
        "product": shared,
        "product with bias": of_token,
        "outer": outers,
        "blend": blended(draw(4, H, seed=8), (far, shared, of_token, outers)),
        "blend of shared": blended(draw(2, H, seed=8), (far, shared)),
    }


def dense(logits, mask=OPEN):
    """The weights of the first T queries and keys."""
    return masked_softmax(logits(slice(0, T), T), mask.dense(T, T))


@pytest.mark.parametrize("form", [Form(tile=4), Form("plain", tile=4)], ids=["auto", "plain"])
@pytest.mark.parametrize("case", MASKS)
@pytest.mark.parametrize("name", sources())
def test_tiles_equal_the_whole(name, case, form):
    mask, source = MASKS[case], sources()[name]
    v = draw(B, H, T, V, seed=9)
    whole = dense(source, mask) @ v
    blocks = synthesizer_attention(source, v, T=T, mask=mask, impl=form)
    shown = VALID[:, None, :, None] if mask.compact else torch.tensor(True)
    torch.testing.assert_close(blocks * shown, whole * shown, rtol=1e-12, atol=1e-12)
    gradient = draw(*whole.shape, seed=10).detach() * shown
    leaves = [v, *source.of_queries, *source.others]
    for ours, naive in zip(
        torch.autograd.grad(blocks, leaves, gradient),
        torch.autograd.grad(whole, leaves, gradient),
        strict=True,
    ):
        torch.testing.assert_close(ours, naive, rtol=1e-10, atol=1e-11)


def test_logits_far_apart_keep_their_digits():
    R = draw(1, H, T, T, scale=2000.0)
    v = draw(B, H, T, V, seed=1)
    whole = dense(tables(R)) @ v
    torch.testing.assert_close(synthesizer_attention(tables(R), v, T=T), whole)


@pytest.mark.parametrize("rows", [slice(None), slice(4, 5)])
@pytest.mark.parametrize("level", [-3000.0, -738.0, 3000.0])
def test_rows_whose_exponentials_leave_the_range_of_numbers(level, rows):
    R, v = draw(1, H, T, T), draw(B, H, T, V, seed=1)
    moved = R.detach().clone()
    moved[:, :, rows] += level  # changes no weight
    for given in (R, moved.requires_grad_()):
        synthesizer_attention(tables(given), v, T=T, impl=Form(tile=4)).square().sum().backward()
    torch.testing.assert_close(moved.grad, R.grad)
    assert torch.isfinite(moved.grad).all()


def test_a_shared_table_gives_weights_once_for_all_examples():
    one = tables(draw(1, H, T, T))
    values = {n: draw(n, H, T, V) for n in (1, 4)}
    flops = [count(lambda v=v: synthesizer_attention(one, v, T=T)).flops for v in values.values()]
    assert flops == [2 * n * H * T * T * V for n in (1, 4)]


@pytest.mark.parametrize("left, right", [(T - 1, T), (T, T - 1)])
def test_factors_that_do_not_reach_all_tokens_are_refused(left, right):
    short = products(draw(B, H, left, V), draw(1, H, right, V))
    with pytest.raises(ShapeError, match=f"{T - 1} positions meet {T} tokens"):
        synthesizer_attention(short, draw(B, H, T, V), T=T)


@pytest.mark.parametrize("shape", [(1, 1), (1, H), (B, 1)])
def test_a_bias_may_be_shared_where_its_factor_is_not(shape):
    biased = products(draw(B, H, T, V), draw(1, H, T, V, seed=1), draw(*shape, T, seed=2))
    v = draw(B, H, T, V, seed=3)
    whole = dense(biased) @ v
    torch.testing.assert_close(synthesizer_attention(biased, v, T=T), whole)


@pytest.mark.parametrize("impl", ["auto", "plain"])
@pytest.mark.parametrize("causal", [False, True])
def test_no_matrix_of_all_pairs_is_stored(causal, impl):
    T = 4096
    left, right = (torch.randn(1, 1, T, 8).requires_grad_() for _ in "lr")
    v = torch.randn(1, 1, T, 8).requires_grad_()

    def step():
        y = synthesizer_attention(
            products(left, right), v, T=T, mask=Mask(causal=causal), impl=impl
        )
        y.sum().backward()

    assert count(step).peak_bytes < T * T  # a fourth of one matrix in float32
