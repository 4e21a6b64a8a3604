"""Pairs of linked things and of things that are not linked, in parts that share nothing."""

from collections.abc import Mapping, Sequence

import numpy as np

Link = tuple[str, str]


def parts_of(
    names: Sequence[str], links: Sequence[Link], shares: Sequence[float]
) -> list[set[str]]:
    """The names, cut into parts of these shares such that few links are cut.

    The reverse Cuthill-McKee order (1969) brings linked names near each other; it is cut where the shares end.
    """
    from scipy.sparse import csr_matrix
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    place = {name: row for row, name in enumerate(names)}
    a, b = (np.array([place[link[end]] for link in links], dtype=int) for end in (0, 1))
    both = (np.concatenate([a, b]), np.concatenate([b, a]))
    matrix = csr_matrix((np.ones(len(both[0])), both), shape=(len(names), len(names)))
    order = reverse_cuthill_mckee(matrix, symmetric_mode=True)
    borders = np.round(np.cumsum(shares)[:-1] * len(names)).astype(int)
    return [{names[row] for row in rows} for rows in np.split(order, borders)]


def paired(
    links: Sequence[Link], group: Mapping[str, str], part: set[str], rng: np.random.Generator
) -> list[tuple[str, str, int]]:
    """(first, second, 1) for each pair that is linked within the part, and as many (first, other, 0).

    A pair linked both ways counts once, in the order drawn by `rng`. The other is not linked with the first, belongs to
    the group of the second, and is drawn with the chance with which its group's names stand second: how often a name is
    seen says nothing about the label.
    """
    inside = sorted({tuple(sorted(link)) for link in links if set(link) <= part})
    flips = rng.integers(0, 2, len(inside))
    true = [(a, b) if flip else (b, a) for (a, b), flip in zip(inside, flips, strict=True)]
    known = set(true) | {(b, a) for a, b in true}
    seconds: dict[str, list[str]] = {}
    for _, second in true:
        seconds.setdefault(group[second], []).append(second)
    found = []
    for first, second in true:
        pool = seconds[group[second]]
        other = [name for name in pool if name != first and (first, name) not in known]
        if other:
            found += [(first, second, 1), (first, other[rng.integers(len(other))], 0)]
    return [found[row] for row in rng.permutation(len(found))]
