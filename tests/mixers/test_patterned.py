"""What the laws do not ask of mixers with a fixed pattern."""

import pytest
import torch

from regard import Mask, ShapeError, build
from regard.functional.patterns import All, Block, First, PerHead, Window


def test_random_blocks_are_saved_and_come_from_the_seed():
    facts = dict(dim=8, num_heads=2, max_len=40, block_size=4, num_random=2)
    a, same, other = (build("bigbird", **facts, seed=seed) for seed in (0, 0, 1))
    assert torch.equal(a.random_blocks, same.random_blocks)
    assert not torch.equal(a.random_blocks, other.random_blocks)
    other.load_state_dict(a.state_dict())
    assert torch.equal(a.random_blocks, other.random_blocks)
    x = torch.randn(1, 37, 8)
    assert torch.equal(a(x), other(x))


def test_longformer_starts_with_one_set_of_projections_and_bounds_its_global_tokens():
    torch.manual_seed(0)
    free = build("longformer", dim=12, num_heads=3, window_size=2)
    assert torch.equal(free.heads.query.weight, free.global_heads.query.weight)
    bounded = build("longformer", dim=12, num_heads=3, window_size=2, max_global=4)
    torch.nn.init.normal_(free.global_heads.key.weight)
    bounded.load_state_dict(free.state_dict())
    x, marked = torch.randn(2, 200, 12), torch.zeros(2, 200, dtype=torch.bool)
    marked[0, [3, 150]] = marked[1, [0, 64, 65, 199]] = True
    for causal in (False, True):
        mask = Mask(causal=causal, global_tokens=marked)
        torch.testing.assert_close(free(x, mask=mask), bounded(x, mask=mask), rtol=1e-4, atol=1e-5)


def test_longformer_refuses_more_global_tokens_than_it_was_promised():
    mixer = build("longformer", dim=24, num_heads=3, window_size=2, max_global=2)
    x, marks = torch.randn(1, 9, 24), torch.zeros(1, 9, dtype=torch.bool)
    marks[:, :2] = True
    assert mixer(x, mask=Mask(global_tokens=marks)).shape == x.shape
    marks[:, 5] = True
    with pytest.raises(ShapeError, match="marks 3 tokens of a row, max_global is 2"):
        mixer(x, mask=Mask(global_tokens=marks))


def test_head_mix_takes_one_pattern_for_all_heads_and_a_pattern_of_heads():
    one, each = Window(1, 1) | First(1), PerHead((Window(1, 1), Block(4), All()))
    x = torch.randn(1, 9, 24)
    torch.manual_seed(0)
    single = build("head_mix", dim=24, num_heads=3, patterns=one)
    torch.manual_seed(0)
    thrice = build("head_mix", dim=24, num_heads=3, patterns=(one, one, one))
    assert single.pattern == thrice.pattern
    torch.testing.assert_close(single(x), thrice(x))
    assert build("head_mix", dim=24, num_heads=3, patterns=each).pattern == each
