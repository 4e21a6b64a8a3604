import numpy as np
import pytest

from regard.core import OptionError
from regard.lab.data.synthetic import generate_correlated_tasks


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


def test_what_is_left_once_the_weights_are_known_is_one_curve_and_noise():
    y = generate_correlated_tasks(4000, rho=1.0, dim=3).y
    assert abs((y[:, 0] - y[:, 1]).std() - 0.1 * np.sqrt(2)) < 0.01


def test_the_seed_decides_and_more_rows_begin_the_same():
    one = generate_correlated_tasks(5, rho=0.5)
    more, other = (
        generate_correlated_tasks(9, rho=0.5),
        generate_correlated_tasks(5, rho=0.5, seed=1),
    )
    assert np.array_equal(more.x[:5], one.x) and np.allclose(more.y[:5], one.y)
    assert one.x.shape == (5, 100) and one.y.shape == (5, 2)
    assert not np.array_equal(one.x, other.x)


def test_what_is_wrong_is_named():
    with pytest.raises(OptionError, match=r"rho \(1.5\)"):
        generate_correlated_tasks(5, rho=1.5)
    with pytest.raises(OptionError, match=r"dim \(1\)"):
        generate_correlated_tasks(5, rho=0.5, dim=1)
