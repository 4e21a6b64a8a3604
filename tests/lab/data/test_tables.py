"""Readers of tables, on rows that are written here; histories, by their definition."""

import numpy as np
import pytest

from regard.core import OptionError
from regard.lab.tasks import tables


def test_adult_takes_each_row_once():
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K"
    other = row.replace("39", "50", 1).replace("?", "Sales")
    found = tables.parse_adult(f"{row}\r\n{other}\r\n{row}\r\n\r\n".encode())
    assert found["age"] == [39.0, 50.0] and found["occupation"] == [None, "Sales"]
    assert found["income"] == ["<=50K"] * 2 and found["workclass"] == ["State-gov"] * 2


def test_films_are_in_the_order_of_the_file():
    found = tables.parse_movielens(
        b"user_id:token\titem_id:token\trating:float\ttimestamp:float\r\nu2\tB (1999)\t4\t7\r\nu1\tA (1998)\t3\t5\r\n",
        b"item_id:token\tmovie_title:token\trelease_year:float\tgenre:token\r\nA (1998)\tA\t1998\tDrama War\r\nB (1999)\tB\t1999\tComedy\r\n",
        b"user_id:token\tage:float\tgender:token\toccupation:float\tzip_code:token\r\nu1\t1\tF\t10\t48067\r\nu2\t56\tM\t16\t70072\r\n",
    )
    assert found.films == ["B (1999)", "A (1998)"]
    assert found.genres == [["Comedy"], ["Drama", "War"]]
    assert found.users == {"gender": ["M", "F"], "age": ["56", "1"], "occupation": ["16", "10"]}
    assert found.behaviours.positive.tolist() == [True, False]
    assert found.behaviours.time.tolist() == [7, 5]


def behaviours(rows):
    user, item, time, positive = np.array(rows).T
    return tables.Behaviours(user, item, time, positive.astype(bool))


ROWS = [
    *([0, 5, 9, 1], [0, 1, 3, 1], [0, 2, 3, 1], [0, 7, 4, 0], [0, 3, 5, 1], [0, 4, 6, 1]),
    *([1, 6, 1, 1], [1, 8, 2, 1]),  # too few
    *([2, 9, 1, 1], [2, 6, 1, 1], [2, 8, 1, 1], [2, 1, 1, 1]),
]


def test_a_history_is_what_came_before_and_ties_keep_the_files_order():
    found = tables.next_items(behaviours(ROWS), history=2, targets=5, seed=0)
    asked = [(one.user, one.item, one.history, one.part) for one in found]
    assert asked[::2] == [
        (0, 2, [1], tables.TRAIN),
        (0, 3, [1, 2], tables.TRAIN),
        (0, 4, [2, 3], tables.VALID),
        (0, 5, [3, 4], tables.TEST),
        (2, 6, [9], tables.TRAIN),
        (2, 8, [9, 6], tables.VALID),
        (2, 1, [6, 8], tables.TEST),
    ]
    assert [one.label for one in found] == [1, 0] * 7
    touched = {0: {1, 2, 3, 4, 5, 7}, 2: {1, 6, 8, 9}}
    for (user, _, *true), (same, other, *false) in zip(asked[::2], asked[1::2], strict=True):
        assert user == same and true == false
        assert other not in touched[user] and other in {2, 3, 6}
    parts = [one.part for one in tables.next_items(behaviours(ROWS), history=2, targets=1, seed=0)]
    assert parts.count(tables.TRAIN) == parts.count(tables.TEST) == 4
    with pytest.raises(OptionError, match="no user has three"):
        tables.next_items(behaviours(ROWS[6:8]), history=2, targets=5, seed=0)
    with pytest.raises(OptionError, match="touched every item"):
        tables.next_items(behaviours(ROWS[8:]), history=2, targets=5, seed=0)
    assert tables.numbered(["b", "a", "b"])[1] == ["b", "a"]
