"""Intervals by hand, against a bootstrap of seeds and items, and how often they hold the truth."""

import math

import numpy as np
import pytest

from regard.lab.experiment.claims import (
    Interval,
    Scores,
    interval,
    seeds_to_tell,
    together,
    verdict,
)


def scored(table):
    """Scores of each seed from a table [S N]."""
    return {seed: Scores(float(np.mean(row)), list(row)) for seed, row in enumerate(table)}


def test_by_hand():
    """Seeds 1, 2, 3 of two items, 1 apart: a = 1/3, b = .5/2, nu = (7/12)^2 / ((1/9)/2 + (1/16)/1)."""
    from scipy import stats  # takes seconds to import

    found = interval(scored([[0.5, 1.5], [1.5, 2.5], [2.5, 3.5]]))
    a, b = 1 / 3, 0.25
    nu = (a + b) ** 2 / (a**2 / 2 + b**2)
    assert (found.mean, found.seeds, found.items) == (2, 3, 2)
    assert found.half == pytest.approx(stats.t.ppf(0.995, nu) * math.sqrt(a + b))
    assert found.of_items == pytest.approx(b / (a + b))
    alone = interval({0: Scores(1.0), 1: Scores(2.0), 2: Scores(3.0)})
    assert alone.half == pytest.approx(9.924843 / math.sqrt(3)) and alone.items == 0
    assert interval({}) is None and interval({3: Scores(5.0)}).half == math.inf


def test_only_what_both_have_is_paired():
    a = {0: Scores(1.0, [1.0, 1.0]), 1: Scores(2.0, [2.0, 2.0]), 2: Scores(9.0, [9.0, 9.0])}
    b = {0: Scores(0.5, [0.5, 0.5]), 1: Scores(1.5, [1.5, 1.5]), 3: Scores(0.0, [0.0, 0.0])}
    assert interval(a, b)[:4] == (0.5, 0.0, 2, 2)
    ragged = {0: Scores(0.5, [0.5]), 1: Scores(1.5, [1.5])}
    assert interval(a, ragged).items == 0, "other items are not paired"


@pytest.mark.parametrize(("of_seed", "of_item", "noise"), [
    (0.05, 0.0, 0.1), (0.0, 0.3, 0.1), (0.02, 0.3, 0.1), (0.0, 0.0, 0.5),
])  # fmt: skip
def test_it_holds_the_truth_99_times_of_a_hundred(of_seed, of_item, noise):
    normal, held = np.random.default_rng(1).normal, []
    for _ in range(2000):
        table = of_seed * normal(size=(8, 1)) + of_item * normal(size=(1, 60))
        found = interval(scored(table + noise * normal(size=(8, 60))))
        held.append(abs(found.mean) <= found.half)
    assert np.mean(held) >= 0.984  # three deviations of 2,000 draws below; noise alone counts twice


ABOVE, WITHIN = (0.0, math.inf), (-0.05, 0.05)


@pytest.mark.parametrize(("bounds", "mean", "half", "word"), [
    (ABOVE, 0.1, 0.05, "agrees"),
    (ABOVE, -0.1, 0.05, "disagrees"),
    *((ABOVE, 0.1, half, "cannot tell") for half in (0.11, 0.2, math.inf)),
    ((1.0, math.inf), 1.0, 0.0, "agrees"),
    (WITHIN, 0.0, 0.01, "agrees"),
    (WITHIN, 0.1, 0.01, "disagrees"),
])  # fmt: skip
def test_the_verdict_follows_from_the_interval(bounds, mean, half, word):
    assert verdict(Interval(mean, half, 8), *bounds) == word
    assert verdict(None, *bounds) == "not run"


def test_a_claim_agrees_where_all_its_bounds_do():
    assert together([]) == "not run" and together(["agrees", "agrees"]) == "agrees"
    assert together(["agrees", "cannot tell"]) == "cannot tell"
    assert together(["cannot tell", "disagrees"]) == "disagrees"
    assert together(["cannot tell", "not run"]) == "not run"


def test_how_many_seeds_would_tell():
    """Half as wide takes four times the seeds; where items make half of the width, no number of them is enough."""
    assert seeds_to_tell(Interval(0.05, 0.1, 8), 0.0, math.inf, 0.0) == 32
    assert seeds_to_tell(Interval(0.0, 0.1, 8), 0.0, math.inf, 0.1) == 32
    assert seeds_to_tell(Interval(0.05, 0.1, 8, 50, 0.25), 0.0, math.inf, 0.0) is None
    assert seeds_to_tell(Interval(0.0, 0.1, 8), 0.0, math.inf, 0.0) is None
