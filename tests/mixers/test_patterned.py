"""What the laws do not ask of mixers with a fixed pattern."""

import pytest
import torch

from regard import Mask, ShapeError, build
from regard.functional.patterns import All, Block, First, PerHead, Window


def test_longformer_starts_with_one_set_of_projections_and_bounds_its_global_tokens():
    free = build("longformer", dim=12, num_heads=3, window_size=2)
    assert torch.equal(free.heads.query.weight, free.global_heads.query.weight)
    bounded = build("longformer", **dict(free.options) | {"max_global": 4})
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
    single, thrice, mixed = (
        build("head_mix", dim=24, num_heads=3, patterns=given) for given in (one, (one,) * 3, each)
    )
    assert single.pattern == thrice.pattern and mixed.pattern == each
