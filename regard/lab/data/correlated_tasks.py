"""Two regression tasks that are as much alike as one says (Ma et al. 2018, KDD, section 3.2).

    w_1 = c u_1,   w_2 = c (rho u_1 + sqrt(1 - rho^2) u_2),   u_1 and u_2 unit vectors at right angles
    x ~ N(0, I),   y_k = w_k . x + sum_i sin(alpha_i w_k . x + beta_i) + e,   e ~ N(0, 0.01)

rho is the cosine of the weight vectors. The paper does not tell c, alpha and beta: here c = 1, and alpha_i in [0, 4) and
beta_i in [0, 2 pi) are drawn from the seed before anything else, the same for both tasks and every rho.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes

NOISE = 0.1  # standard deviation


class CorrelatedTasks(NamedTuple):
    x: NDArray[np.floating]  # [n dim]
    y: NDArray[np.floating]  # [n 2]


def generate_correlated_tasks(
    count: int, *, rho: float, dim: int = 100, num_sines: int = 4, seed: int = 0
) -> CorrelatedTasks:
    """Rows of one seed share weights and sines; more rows of it begin with the same ones."""
    check_sizes("correlated_tasks", count=count)
    check_seed("correlated_tasks", seed)
    check_correlated_tasks(rho, dim, num_sines)
    rng = np.random.default_rng(seed)
    alpha, beta = 4 * rng.random(num_sines), 2 * np.pi * rng.random(num_sines)
    u, _ = np.linalg.qr(rng.standard_normal((dim, 2)))
    w = u @ np.array([[1, rho], [0, np.sqrt(1 - rho**2)]])
    drawn = rng.standard_normal((count, dim + 2))
    x = drawn[:, :dim]
    z = x @ w
    y = z + np.sin(alpha * z[..., None] + beta).sum(-1) + NOISE * drawn[:, dim:]
    return CorrelatedTasks(x, y)


def check_correlated_tasks(rho: float, dim: int, num_sines: int) -> None:
    """Raises OptionError naming what cannot be used."""
    check_sizes("correlated_tasks", dim=dim, num_sines=num_sines)
    if not -1 <= rho <= 1:
        raise OptionError(f"rho ({rho!r}) must lie between -1 and 1")
    if dim < 2:
        raise OptionError(
            f"dim ({dim}) must be at least 2: two weight vectors stand at right angles"
        )
