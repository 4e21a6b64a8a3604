"""Small synthetic tasks follow their rules."""

import numpy as np
import pytest

from regard.lab.data.synthetic import (
    IGNORED,
    generate_correlated_tasks,
    generate_planted_histories,
    generate_recall,
)


def test_each_key_is_asked_once_and_its_value_is_the_label():
    sizes = {"length": 40, "num_pairs": 5, "vocab_size": 30}
    tokens, labels = generate_recall(200, **sizes, spread=0.5, seed=2)
    for row, asked in zip(tokens.tolist(), labels.tolist(), strict=True):
        pairs = dict(zip(row[0:10:2], row[1:10:2], strict=True))
        assert len(pairs) == 5 and max(pairs) < 15 <= min(pairs.values())
        places = [place for place, label in enumerate(asked) if label != IGNORED]
        assert {row[place]: asked[place] for place in places} == pairs and len(places) == 5
        assert min(places) >= 10 and all(row[place + 1] == asked[place] for place in places)


def weights(rho):
    """Least squares sees the linear part and what the sines add along it."""
    x, y = generate_correlated_tasks(20000, rho=rho, dim=10, num_sines=2)
    w = np.linalg.lstsq(x, y, rcond=None)[0]
    return w / np.linalg.norm(w, axis=0)


@pytest.mark.parametrize("rho", [-1.0, 0.0, 0.5, 1.0])
def test_rho_is_the_cosine_of_the_tasks(rho):
    w = weights(rho)
    assert abs(w[:, 0] @ w[:, 1] - rho) < 0.03
    np.testing.assert_allclose(w[:, 0], weights(0.3)[:, 0], atol=0.03)


def test_tasks_differ_by_noise_alone_and_more_rows_begin_the_same():
    y = generate_correlated_tasks(4000, rho=1.0, dim=3).y
    assert abs((y[:, 0] - y[:, 1]).std() - 0.1 * np.sqrt(2)) < 0.01
    one, more = (generate_correlated_tasks(count, rho=0.5) for count in (5, 9))
    assert np.array_equal(more.x[:5], one.x) and np.allclose(more.y[:5], one.y)
    assert one.x.shape == (5, 100) and one.y.shape == (5, 2)
    assert not np.array_equal(one.x, generate_correlated_tasks(5, rho=0.5, seed=1).x)


def test_a_candidate_is_liked_for_its_kind():
    history, candidate, liked = generate_planted_histories(300, length=5, num_items=20, num_kinds=7)
    assert history.shape == (300, 5) and set(np.unique(history)) == set(range(20))
    for n in range(300):
        assert liked[n] == (candidate[n] % 7 in {h % 7 for h in history[n]})
