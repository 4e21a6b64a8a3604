import numpy as np
import pytest

from regard import OptionError
from regard.lab.data.synthetic import generate_planted_histories


def test_a_candidate_is_liked_for_its_kind():
    history, candidate, liked = generate_planted_histories(300, length=5, num_items=20, num_kinds=7)
    assert history.shape == (300, 5) and set(np.unique(history)) == set(range(20))
    for n in range(300):
        assert liked[n] == (candidate[n] % 7 in {h % 7 for h in history[n]})


def test_neither_side_tells_anything_alone():
    history, candidate, liked = generate_planted_histories(64_000)
    share = 1 - (15 / 16) ** 8
    assert abs(liked.mean() - share) < 0.01
    of_items = [liked[candidate == item].mean() for item in range(64)]
    seen = [liked[(history == item).any(1)].mean() for item in range(64)]
    assert max(abs(np.array([*of_items, *seen]) - share)) < 0.07


def test_the_seed_decides_and_more_rows_begin_the_same():
    one, more = generate_planted_histories(5), generate_planted_histories(9)
    assert np.array_equal(more.history[:5], one.history)
    assert np.array_equal(more.candidate[:5], one.candidate)
    assert not np.array_equal(generate_planted_histories(5, seed=1).history, one.history)


def test_what_is_wrong_is_named():
    for options, message in [
        ({"num_kinds": 1}, r"num_kinds \(1\) must be from 2 to num_items \(64\)"),
        ({"num_items": 9}, r"num_kinds \(16\)"),
        ({"length": 0}, r"length \(0\)"),
        ({"seed": -1}, "seed"),
    ]:
        with pytest.raises(OptionError, match=message):
            generate_planted_histories(5, **options)
