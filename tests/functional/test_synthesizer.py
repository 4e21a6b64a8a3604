"""Synthesized logits, tile by tile, give what one whole matrix of weights gives."""

import pytest
import torch

from regard import Form
from regard.core import OPEN, ShapeError
from regard.functional.rows import masked_softmax
from regard.functional.synthesizer import Logits, product, synthesizer_attention, table
from regard.testing.counting import count

B, H, T, V, ROOM = 2, 3, 11, 5, 14  # tables and factors reach further than the sequence


def draw(*shape, seed=0, scale=1.0):
    generator = torch.Generator().manual_seed(seed)
    return (scale * torch.randn(*shape, generator=generator, dtype=torch.float64)).requires_grad_()


def tables(R):
    return Logits(table, (R,))


def products(R, C, *b):
    return Logits(product, (R,), (C, *b))


def dense(logits, mask=OPEN):
    """The weights of the first T queries and keys."""
    return masked_softmax(logits(slice(0, T), T), mask.dense(T, T))


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
