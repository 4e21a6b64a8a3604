"""Small synthetic tasks, drawn from a seed in a few array operations."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.records import IGNORED, Rows


def generate_recall(
    count: int, *, length: int, num_pairs: int, vocab_size: int, spread: float, seed: int
) -> Rows:
    """Multi-query associative recall (Arora et al. 2023, arXiv 2312.04927): keys with values first, then keys alone.

        k1 v1 k2 v2 ... kn vn   . . k2 v2 . . . k1 v1 . .        each key comes once more; its value is the label there

    A query is at an even distance g behind the pairs, drawn without replacement with weight (g/2 + 1)^(spread - 1):
    small spreads put it early, spread 1 anywhere. The dots are random tokens. Keys and values are disjoint halves of the
    vocabulary. As in the paper, except that the dots are never padding (token 0).
    """
    rng = np.random.default_rng(seed)
    half = vocab_size // 2
    keys = 1 + rng.random((count, half - 1)).argsort(1)[:, :num_pairs]
    values = rng.integers(half, vocab_size, (count, num_pairs))
    tokens = rng.integers(1, vocab_size, (count, length + 1))
    labels = np.full((count, length), IGNORED)
    tokens[:, 0 : 2 * num_pairs : 2] = keys
    tokens[:, 1 : 2 * num_pairs : 2] = values
    free = length // 2 - num_pairs  # even distances
    weights = (spread - 1) * np.log(np.arange(1, free + 1))
    # the largest of log weight + Gumbel noise are a weighted draw without replacement
    order = (-weights - rng.gumbel(size=(count, free))).argsort(1)
    places = 2 * (num_pairs + order[:, :num_pairs])
    np.put_along_axis(tokens, places, keys, axis=1)
    np.put_along_axis(tokens, places + 1, values, axis=1)
    np.put_along_axis(labels, places, values, axis=1)
    return Rows(tokens[:, :length], labels)


CONTEXT = -1


class Orders(NamedTuple):
    order: NDArray[np.integer]  # [n T]: the rank of each target, -1 for context
    labels: NDArray[np.integer]  # [n T]: the token itself where it is a target, else -100


def draw_orders(
    tokens: NDArray[np.integer],
    k: int,
    rng: np.random.Generator,
    *,
    never: Collection[int] = (),
) -> Orders:
    """Orders in which the tokens of a window are predicted (Yang et al. 2019, arXiv 1906.08237).

    T / K of every T tokens are targets, in an order drawn evenly; the others are context, which every target sees and which
    has no label. Tokens among `never` are context always.
    """
    spared = np.isin(tokens, list(never))
    chance = np.where(spared, 2.0, rng.random(tokens.shape))
    asked = chance.argsort(1)[:, : max(1, tokens.shape[1] // k)]
    order = np.full(tokens.shape, CONTEXT, dtype=np.int32)
    np.put_along_axis(order, asked, np.arange(asked.shape[1], dtype=np.int32)[None], axis=1)
    order[spared] = CONTEXT
    return Orders(order, np.where(order == CONTEXT, np.int32(IGNORED), tokens))


NOISE = 0.1  # standard deviation


class Regressions(NamedTuple):
    x: NDArray[np.floating]  # [n dim]
    y: NDArray[np.floating]  # [n 2]


def generate_correlated_tasks(
    count: int, *, rho: float, dim: int = 100, num_sines: int = 4, seed: int = 0
) -> Regressions:
    """Two regression tasks of chosen similarity (Ma et al. 2018, KDD, section 3.2).

        w_1 = c u_1,   w_2 = c (rho u_1 + sqrt(1 - rho^2) u_2),   u_1 and u_2 unit vectors at right angles
        x ~ N(0, I),   y_k = w_k . x + sum_i sin(alpha_i w_k . x + beta_i) + e,   e ~ N(0, 0.01)

    rho is the cosine of the weight vectors. The paper does not give c, alpha and beta: here c = 1, and alpha_i in [0, 4) and
    beta_i in [0, 2 pi) are drawn from the seed before anything else, the same for both tasks and every rho.

    Rows of one seed share weights and sines; more rows of it begin with the same ones.
    """
    rng = np.random.default_rng(seed)
    alpha, beta = 4 * rng.random(num_sines), 2 * np.pi * rng.random(num_sines)
    u, _ = np.linalg.qr(rng.standard_normal((dim, 2)))
    w = u @ np.array([[1, rho], [0, np.sqrt(1 - rho**2)]])
    drawn = rng.standard_normal((count, dim + 2))
    x = drawn[:, :dim]
    z = x @ w
    y = z + np.sin(alpha * z[..., None] + beta).sum(-1) + NOISE * drawn[:, dim:]
    return Regressions(x, y)


class LikedItems(NamedTuple):
    history: NDArray[np.integer]  # [n length]
    candidate: NDArray[np.integer]  # [n]
    liked: NDArray[np.bool_]  # [n]


def generate_planted_histories(
    count: int, *, length: int = 8, num_items: int = 64, num_kinds: int = 16, seed: int = 0
) -> LikedItems:
    """Planted histories: a candidate is liked if its kind is among the kinds of what was seen before.

        kind(i) = i mod num_kinds,   y = [kind(candidate) in {kind(h) for h in history}]

    What DIN is for (Zhou et al. 2018, arXiv 1706.06978), with nothing else in it: all items are drawn alike, so that neither
    the candidate nor the history carries information alone.

    Items are numbers from 0; more rows of a seed begin with the same ones.
    """
    drawn = np.random.default_rng(seed).integers(0, num_items, (count, length + 1))
    history, candidate = drawn[:, :-1], drawn[:, -1]
    liked = (history % num_kinds == candidate[:, None] % num_kinds).any(1)
    return LikedItems(history, candidate, liked)
