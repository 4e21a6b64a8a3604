"""Synthesized logits, tile by tile, give what one whole matrix of weights gives."""

import pytest
import torch

from regard import Form
from regard.core import ShapeError
from regard.functional.synthesizer import Logits, product, synthesizer_attention, table
from regard.testing.counting import count
from regard.testing.subject import normal

B, H, T, V = 2, 3, 11, 5


@pytest.mark.parametrize("rows", [slice(None), slice(4, 5)])
@pytest.mark.parametrize("level", [-3000.0, -738.0, 3000.0])
def test_rows_whose_exponentials_leave_the_range_of_numbers(level, rows):
    R, v = normal(1, H, T, T).requires_grad_(), normal(B, H, T, V, seed=1)
    moved = R.detach().clone()
    moved[:, :, rows] += level  # changes no weight
    for given in (R, moved.requires_grad_()):
        y = synthesizer_attention(Logits(table, (given,)), v, T=T, impl=Form(tile=4))
        y.square().sum().backward()
    torch.testing.assert_close(moved.grad, R.grad)
    assert torch.isfinite(moved.grad).all()


def test_a_shared_table_gives_weights_once_for_all_examples():
    one = Logits(table, (normal(1, H, T, T),))
    values = {n: normal(n, H, T, V) for n in (1, 4)}
    flops = [count(lambda v=v: synthesizer_attention(one, v, T=T)).flops for v in values.values()]
    assert flops == [2 * n * H * T * T * V for n in (1, 4)]


@pytest.mark.parametrize("left, right", [(T - 1, T), (T, T - 1)])
def test_factors_that_do_not_reach_all_tokens_are_refused(left, right):
    short = Logits(product, (normal(B, H, left, V),), (normal(1, H, right, V),))
    with pytest.raises(ShapeError, match=f"{T - 1} positions meet {T} tokens"):
        synthesizer_attention(short, normal(B, H, T, V), T=T)


@pytest.mark.parametrize("shape", [(1, 1), (1, H), (B, 1)])
def test_a_bias_may_be_shared_where_its_factor_is_not(shape):
    factors = normal(1, H, T, V, seed=1), normal(*shape, T, seed=2)
    biased, v = Logits(product, (normal(B, H, T, V),), factors), normal(B, H, T, V, seed=3)
    whole = biased(slice(0, T), T).softmax(-1) @ v
    torch.testing.assert_close(synthesizer_attention(biased, v, T=T), whole)
