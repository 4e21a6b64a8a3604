"""Patterns: the algebra, the picture, and attention that agrees with the picture however its blocks fall."""

from dataclasses import replace
from functools import partial
from itertools import product

import pytest
import torch

from regard import Mask, OptionError, ShapeError
from regard.functional import pattern_attention, patterns, window_attention
from regard.functional.pattern import weights
from regard.functional.patterns import All, Block, First, PerHead, Scattered, Span, Strided, Window
from regard.functional.rows import Form
from regard.mixers.bigbird import draw_blocks
from regard.testing.subject import normal
from tests.refused import assert_refused

B, H, K = 2, 3, 4
TABLE = draw_blocks(H, 11, 2, seed=3, causal=False, first_is_global=False)
PATTERNS = [
    Window(2, 1), Window(2, 2, 3), Block(4), Block(3, 1, 1), Strided(4), Window(3, 3) | Strided(4),
    Block(4) | patterns.Summary(4, 2), patterns.Summary(5, 2, 1) | patterns.Summary(3, 1),
    Window(1, 1, 2) | Window(1, 1, 3) | First(2) | Strided(5), All(),
    PerHead((Window(1, 1), Strided(3), Window(1, 1))) | First(1),
    Block(3, 1, 1) | Scattered(3, TABLE) | First(3), Window(1, 2) | Span(4, 7) | First(1),
    Scattered(4, TABLE) | Span(8, 12), Scattered(3, TABLE) | Window(1, 1) | Strided(4),
]  # fmt: skip
TINY = Form(tile=4, chunk=3, room=2048)


def masks(T: int, causal: bool):
    valid = torch.arange(T) < torch.tensor([[T], [max(T - 3, 1)]])
    pairwise = torch.rand(1, H, T, T) > 0.4
    few = torch.rand(B, T) > 0.7
    few = few & (few.cumsum(1) <= 3) & valid
    yield Mask(causal=causal)
    yield Mask(causal=causal, valid=valid, compact=True)
    yield Mask(causal=causal, pairwise=pairwise)
    yield Mask(causal=causal, valid=valid, pairwise=pairwise, global_tokens=few, compact=True)


@pytest.mark.parametrize("impl", [TINY, replace(TINY, name="plain")], ids=["fast", "plain"])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("pattern", PATTERNS, ids=repr)
def test_it_equals_the_dense_softmax_in_outputs_and_gradients(pattern, causal, impl):
    torch.manual_seed(0)
    for T, max_global in ((1, None), (5, 3), (13, None), (13, 3)):
        q, k, v, dy = (normal(B, H, T, K, seed=seed).requires_grad_() for seed in range(4))
        outer = tuple(normal(B, H, 2, K, seed=seed).requires_grad_() for seed in (4, 5))
        for mask, prefix in product(masks(T, causal), (None, outer)):
            given = {"pattern": pattern, "mask": mask}
            options = {"prefix": prefix, "max_global": max_global, "impl": impl}
            y = pattern_attention(q, k, v, **given, **options)
            found = weights(q, k, **given, prefix=prefix and prefix[0])
            dense = found @ (v if prefix is None else torch.cat([prefix[1], v], dim=2))
            torch.testing.assert_close(y, dense, rtol=0, atol=1e-12)
            leaves = [q, k, v, *(prefix or ())]
            own, expected = (torch.autograd.grad(z, leaves, dy) for z in (y, dense))
            torch.testing.assert_close(own, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("impl", ["auto", "plain"])
def test_a_mark_on_an_absent_token_is_no_mark(impl):
    q, k, v = (normal(1, 1, 6, 4, seed=seed) for seed in range(3))
    valid, marks = torch.arange(6)[None] < 5, torch.arange(6)[None] % 5 == 0
    for pattern in PATTERNS[:3]:
        given = {"pattern": pattern, "max_global": 2, "impl": impl}
        both = (Mask(valid=valid, global_tokens=z) for z in (marks, marks & valid))
        y, expected = (pattern_attention(q, k, v, mask=mask, **given) for mask in both)
        torch.testing.assert_close(y[:, :, :5], expected[:, :, :5])


@pytest.mark.parametrize("causal", [False, True])
def test_windows_of_the_last_queries_and_marks_are_rows_of_the_whole(causal):
    q, k, v = (normal(1, 1, 7, 4, seed=seed) for seed in range(3))
    mask = Mask(causal=causal, global_tokens=torch.arange(7)[None] % 5 == 0)
    whole = window_attention(q, k, v, window=1, mask=mask)
    last = window_attention(q[:, :, 4:], k, v, window=1, mask=mask)
    torch.testing.assert_close(last, whole[:, :, 4:])


def test_union_is_a_set():
    (a, b, c), picture = (Window(2, 2), Strided(3), First(1)), patterns.picture
    assert torch.equal(picture(a | b, 13), picture(a, 13) | picture(b, 13))
    assert torch.equal(picture(a | b | c, 13), picture(c | b | a, 13))
    assert (a | a).terms == (a,) and a | b == a | b
    heads = PerHead((a, b))
    assert (heads | c) == PerHead((a | c, b | c)) and (c | heads) == PerHead((c | a, c | b))
    assert (heads | PerHead((c, c))) == (heads | c)


def test_blocks_come_from_the_seed_and_keep_away_from_the_window():
    drawn = draw_blocks(2, 9, 3, seed=1, causal=False, first_is_global=True)
    assert torch.equal(drawn, draw_blocks(2, 9, 3, seed=1, causal=False, first_is_global=True))
    assert not torch.equal(drawn, draw_blocks(2, 9, 3, seed=2, causal=False, first_is_global=True))
    past = draw_blocks(2, 9, 3, seed=1, causal=True, first_is_global=True)
    for h in range(2):
        for g in range(9):
            row = [b for b in drawn[h, g].tolist() if b >= 0]
            assert len(row) == len(set(row)) and all(b > 0 and abs(b - g) > 1 for b in row)
            assert all(0 < b < g - 1 for b in past[h, g].tolist() if b >= 0)


def test_errors_name_the_argument():
    q, marks = torch.zeros(1, 2, 5, 4), Mask(global_tokens=torch.ones(1, 5, dtype=torch.bool))
    k, table = q[:, :, 1:], torch.zeros(2, 3, 1, dtype=torch.long)
    attend, many = partial(pattern_attention, q, q, q), {"mask": marks, "max_global": 4}
    odd = (2, table.float()), (2, table[0]), (0, table), (2, None)
    unfit, size = (table[:, :1], table.repeat(2, 1, 1)), "Scattered: size .* a positive integer"
    meets = "a table for . heads and . blocks of 2 meets a tensor"
    assert_refused(
        (OptionError, r"before \(-1\)", lambda: Window(-1, 2)),
        (OptionError, r"width \(3\) of group 1", lambda: patterns.Summary(5, 3, 1)),
        (OptionError, "2 and for 3 heads", lambda: PerHead((All(), All())) | PerHead((All(),) * 3)),
        (ShapeError, "dense float tensor", lambda: pattern_attention(q, k, k, pattern=All())),
        (ShapeError, "for 1 heads meets queries of 2", lambda: attend(pattern=PerHead((All(),)))),
        *((ShapeError, meets, partial(attend, pattern=Scattered(2, one))) for one in unfit),
        *((OptionError, size, partial(Scattered, *given)) for given in odd),
        (TypeError, "unsupported operand", lambda: All() | 3),
        (ShapeError, "more global tokens than max_global", lambda: attend(pattern=All(), **many)),
    )


def test_a_pattern_wider_than_its_row_costs_no_more_than_the_row():
    first = torch.zeros(1, 1, 1, dtype=torch.long)
    for pattern in (First(10**9), Span(2, 10**9), Block(4, before=10**8, after=10**8)):
        assert pattern.keys(first, 4, 7, False).shape[-1] <= 4 + 2 * 7
