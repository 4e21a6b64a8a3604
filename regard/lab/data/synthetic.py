"""Small synthetic tasks, drawn from a seed in a few array operations."""

from collections.abc import Collection
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.records import IGNORED


class Recalls(NamedTuple):
    tokens: NDArray[np.integer]  # [n length]
    labels: NDArray[np.integer]  # [n length]: the value at each asked key, -100 elsewhere


def generate_recall(
    count: int, *, length: int, num_pairs: int, vocab_size: int, spread: float, seed: int
) -> Recalls:
    """Multi-query associative recall (Arora et al. 2023, arXiv 2312.04927): keys with values first, then keys alone.

        k1 v1 k2 v2 ... kn vn   . . k2 v2 . . . k1 v1 . .        each key comes once more; its value is the label there

    A query is at an even distance g behind the pairs, drawn without replacement with weight (g/2 + 1)^(spread - 1):
    small spreads put it early, spread 1 anywhere. The dots are random tokens. Keys and values are disjoint halves of the
    vocabulary. As in the paper, except that the dots are never padding (token 0).
    """
    check_recall(length, num_pairs, vocab_size, spread)
    rng = np.random.default_rng(seed)
    half = vocab_size // 2
    keys = 1 + rng.random((count, half - 1)).argsort(1)[:, :num_pairs]
    values = rng.integers(half, vocab_size, (count, num_pairs))
    tokens = rng.integers(1, vocab_size, (count, length + 1))
    labels = np.full((count, length), IGNORED)
    tokens[:, 0 : 2 * num_pairs : 2] = keys
    tokens[:, 1 : 2 * num_pairs : 2] = values
    places = 2 * num_pairs + 2 * _without_replacement(
        rng, count, length // 2 - num_pairs, num_pairs, spread
    )
    np.put_along_axis(tokens, places, keys, axis=1)
    np.put_along_axis(tokens, places + 1, values, axis=1)
    np.put_along_axis(labels, places, values, axis=1)
    return Recalls(tokens[:, :length], labels)


def check_recall(length: int, num_pairs: int, vocab_size: int, spread: float) -> None:
    """Raise OptionError unless every key fits in once as a pair and once as a query."""
    if 4 * num_pairs > length:
        raise OptionError(
            f"recall: length ({length}) must be at least 4 * num_pairs ({4 * num_pairs}): pairs, then queries with answers"
        )
    if vocab_size // 2 - 1 < num_pairs:
        raise OptionError(
            f"recall: vocab_size ({vocab_size}) must be at least {2 * num_pairs + 2}, for num_pairs ({num_pairs}) keys"
        )
    if not 0 < spread <= 1:
        raise OptionError(f"recall: spread ({spread!r}) must be above 0 and at most 1")


def _without_replacement(
    rng: np.random.Generator, count: int, places: int, picks: int, spread: float
) -> NDArray[np.integer]:
    """[count picks]; the largest of log weight + Gumbel noise are a weighted draw without replacement."""
    scores = (spread - 1) * np.log(np.arange(1, places + 1)) + rng.gumbel(size=(count, places))
    return (-scores).argsort(1)[:, :picks]


BLANK, SIGN, FIRST_SYMBOL = 1, 2, 3


class Copies(NamedTuple):
    tokens: NDArray[np.integer]  # [n length]
    labels: NDArray[np.integer]  # [n length]


def generate_copies(count: int, *, copied: int, gap: int, symbols: int, seed: int) -> Copies:
    """The copying problem (Hochreiter & Schmidhuber 1997; Arjovsky et al. 2015, arXiv 1511.06464): repeat symbols from long ago.

        w1 w2 ... wn   - - - ... -   : w1 w2 ... wn        n symbols, `gap` blanks, a sign, and the symbols once more

    Symbols are drawn evenly. The label of the sign is w1, that of each repeated symbol the next; all other tokens have none.
    Every answer is n + gap tokens back: a model that does not reach so far is no better than chance.
    """
    words = np.random.default_rng(seed).integers(
        FIRST_SYMBOL, FIRST_SYMBOL + symbols, (count, copied)
    )
    tokens = np.full((count, 2 * copied + gap), BLANK)
    tokens[:, :copied] = words
    tokens[:, copied + gap] = SIGN
    tokens[:, copied + gap + 1 :] = words[:, :-1]
    labels = np.full_like(tokens, IGNORED)
    labels[:, copied + gap :] = words
    return Copies(tokens, labels)


SEPARATOR = 1


class Duplications(NamedTuple):
    tokens: NDArray[np.integer]  # [n length]
    labels: NDArray[
        np.integer
    ]  # [n length]: the token after each of the second half, -100 elsewhere


def generate_duplications(count: int, *, length: int, vocab_size: int, seed: int) -> Duplications:
    """Duplication: repeat a sequence (Kitaev et al. 2020, arXiv 2001.04451).

        s w s w        s: token 1; w: drawn anew for each row from the other tokens

    Only the second half has labels, the next token at each place. As in the paper, except that the separator is not token 0, which is
    padding here.

    `length` counts the tokens that are read: all of s w s w but the last.
    """
    check_duplication(length, vocab_size)
    half = (length + 1) // 2
    rng = np.random.default_rng(seed)
    once = rng.integers(SEPARATOR + 1, vocab_size, (count, half))
    once[:, 0] = SEPARATOR
    whole = np.concatenate([once, once], axis=1)
    labels = whole[:, 1:].copy()
    labels[:, :half] = IGNORED
    return Duplications(whole[:, :-1], labels)


def check_duplication(length: int, vocab_size: int) -> None:
    """Raise OptionError unless both halves hold a separator and a token."""
    if length < 3 or length % 2 == 0:
        raise OptionError(
            f"duplication: length ({length}) must be odd and at least 3: twice a separator and a sequence, less the last"
        )
    if vocab_size < 4:
        raise OptionError(
            f"duplication: vocab_size ({vocab_size}) must be at least 4: padding, the separator and two tokens to say"
        )


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
    spans: bool = False,
) -> Orders:
    """Orders in which the tokens of a window are predicted (Yang et al. 2019, arXiv 1906.08237).

    T / K of every T tokens are targets, in an order drawn evenly; the others are context, which every target sees and which
    has no label. Targets are single tokens drawn evenly; with `spans`, as in the paper's code, runs of one to five tokens,
    n of them with a probability as 1 / n and each at a place drawn among n K tokens of its own. Those runs are of tokens here,
    not of whole words.

    Tokens among `never` are context always.
    """
    spared = np.isin(tokens, list(never))
    chance = rng.random(tokens.shape)
    if spans:
        chance[_in_spans(tokens.shape, k, rng)] -= (
            1  # before all others, which fill what is missing
        )
    asked = np.where(spared, 2.0, chance).argsort(1)
    asked = (
        rng.permuted(asked[:, : max(1, tokens.shape[1] // k)], axis=1)
        if spans
        else asked[:, : max(1, tokens.shape[1] // k)]
    )
    order = np.full(tokens.shape, CONTEXT, dtype=np.int32)
    np.put_along_axis(order, asked, np.arange(asked.shape[1], dtype=np.int32)[None], axis=1)
    order[spared] = CONTEXT
    return Orders(order, np.where(order == CONTEXT, np.int32(IGNORED), tokens))


_SPAN = np.arange(1, 6)  # tokens


def _in_spans(shape: tuple[int, ...], k: int, rng: np.random.Generator) -> NDArray[np.bool_]:
    """Which tokens are in a span; no more than T / K in a row."""
    T = shape[1]
    inside = np.zeros(shape, dtype=bool)
    for row in inside:
        at, left = 0, max(1, T // k)
        while at < T and left:
            n = min(int(rng.choice(_SPAN, p=1 / _SPAN / (1 / _SPAN).sum())), left)
            begin = at + int(rng.integers(n * (k - 1) + 1))
            row[begin : begin + n] = True
            at, left = at + n * k, left - n
    return inside


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
    check_correlated_tasks(rho, dim, num_sines)
    rng = np.random.default_rng(seed)
    alpha, beta = 4 * rng.random(num_sines), 2 * np.pi * rng.random(num_sines)
    u, _ = np.linalg.qr(rng.standard_normal((dim, 2)))
    w = u @ np.array([[1, rho], [0, np.sqrt(1 - rho**2)]])
    drawn = rng.standard_normal((count, dim + 2))
    x = drawn[:, :dim]
    z = x @ w
    y = z + np.sin(alpha * z[..., None] + beta).sum(-1) + NOISE * drawn[:, dim:]
    return Regressions(x, y)


def check_correlated_tasks(rho: float, dim: int, num_sines: int) -> None:
    """Raises OptionError naming what cannot be used."""
    if not -1 <= rho <= 1:
        raise OptionError(f"rho ({rho!r}) must lie between -1 and 1")
    if dim < 2:
        raise OptionError(
            f"dim ({dim}) must be at least 2: two weight vectors stand at right angles"
        )


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
    check_planted_histories(length, num_items, num_kinds)
    drawn = np.random.default_rng(seed).integers(0, num_items, (count, length + 1))
    history, candidate = drawn[:, :-1], drawn[:, -1]
    liked = (history % num_kinds == candidate[:, None] % num_kinds).any(1)
    return LikedItems(history, candidate, liked)


def check_planted_histories(length: int, num_items: int, num_kinds: int) -> None:
    """Raises OptionError unless there are two kinds, and an item of each."""
    if not 2 <= num_kinds <= num_items:
        raise OptionError(
            f"planted_histories: num_kinds ({num_kinds}) must be from 2 to num_items ({num_items})"
        )
