"""Readers of tables, on rows that are written here; histories, by their definition."""

import gzip
import json
import math

import numpy as np
import pytest

from regard.core import MissingDataError, OptionError, StoredDataError
from regard.lab.data.own.tables import read_amazon, read_criteo, read_taobao
from regard.lab.data.tables import (
    TEST,
    TRAIN,
    VALID,
    Behaviours,
    next_items,
    numbered,
    parse_adult,
    parse_movielens,
)
from regard.lab.tasks import AmazonReviews, Criteo, Taobao


def test_adult_takes_each_row_once():
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K"
    other = row.replace("39", "50", 1)
    found = parse_adult(f"{row}\r\n{other}\r\n{row}\r\n\r\n".encode())
    assert found["age"] == [39.0, 50.0] and found["occupation"] == [None, None]
    assert found["income"] == ["<=50K"] * 2 and found["workclass"] == ["State-gov"] * 2


def test_films_are_in_the_order_of_the_file():
    found = parse_movielens(
        b"user_id:token\titem_id:token\trating:float\ttimestamp:float\r\nu2\tB (1999)\t4\t7\r\nu1\tA (1998)\t3\t5\r\n",
        b"item_id:token\tmovie_title:token\trelease_year:float\tgenre:token\r\nA (1998)\tA\t1998\tDrama War\r\nB (1999)\tB\t1999\tComedy\r\n",
        b"user_id:token\tage:float\tgender:token\toccupation:float\tzip_code:token\r\nu1\t1\tF\t10\t48067\r\nu2\t56\tM\t16\t70072\r\n",
    )
    assert found.films == ["B (1999)", "A (1998)"] and found.genres == [
        ["Comedy"],
        ["Drama", "War"],
    ]
    assert found.users == {"gender": ["M", "F"], "age": ["56", "1"], "occupation": ["16", "10"]}
    assert found.behaviours.positive.tolist() == [True, False]
    assert found.behaviours.time.tolist() == [7, 5]


def behaviours(rows):
    user, item, time, positive = np.array(rows).T
    return Behaviours(user, item, time, positive.astype(bool))


ROWS = [
    *([0, 5, 9, 1], [0, 1, 3, 1], [0, 2, 3, 1], [0, 7, 4, 0], [0, 3, 5, 1], [0, 4, 6, 1]),
    *([1, 6, 1, 1], [1, 8, 2, 1]),  # too few
    *([2, 9, 1, 1], [2, 6, 1, 1], [2, 8, 1, 1], [2, 1, 1, 1]),
]


def test_a_history_is_what_came_before_and_ties_keep_the_files_order():
    found = next_items(behaviours(ROWS), history=2, targets=5, seed=0)
    ends = np.cumsum(found.history.lengths)
    past = [found.history.values[e - n : e].tolist() for e, n in zip(ends, found.history.lengths, strict=True)]  # fmt: skip
    asked = [
        (int(u), int(i), h, int(p))
        for u, i, h, p in zip(found.user, found.item, past, found.part, strict=True)
    ]
    assert asked[::2] == [
        (0, 2, [1], TRAIN),
        (0, 3, [1, 2], TRAIN),
        (0, 4, [2, 3], VALID),
        (0, 5, [3, 4], TEST),
        (2, 6, [9], TRAIN),
        (2, 8, [9, 6], VALID),
        (2, 1, [6, 8], TEST),
    ]
    assert found.label.tolist() == [1, 0] * 7
    touched = {0: {1, 2, 3, 4, 5, 7}, 2: {1, 6, 8, 9}}
    for (user, _, h, part), (same, other, again, there) in zip(
        asked[::2], asked[1::2], strict=True
    ):
        assert (user, h, part) == (same, again, there)
        assert other not in touched[user] and other in {2, 3, 6}
    one = next_items(behaviours(ROWS), history=2, targets=1, seed=0)
    assert (one.part == TRAIN).sum() == 4 and (one.part == TEST).sum() == 4
    with pytest.raises(OptionError, match="no user has three"):
        next_items(behaviours(ROWS[6:8]), history=2, targets=5, seed=0)
    with pytest.raises(OptionError, match="touched every item"):
        next_items(behaviours(ROWS[8:]), history=2, targets=5, seed=0)
    assert numbered(["b", "a", "b"])[1] == ["b", "a"]


def amazon(folder, users=8):
    reviews, items = folder / "reviews.json.gz", folder / "meta.json"
    lines = [
        json.dumps({"reviewerID": f"u{u}", "asin": f"i{(3 * u + 2 * t) % 11}", "unixReviewTime": t})
        for u in range(users)
        for t in range(5)
    ]
    with gzip.open(reviews, "wt") as file:
        file.write("\n".join(lines))
    about = [{"asin": f"i{i}", "categories": [["All", f"c{i % 3}"]]} for i in range(11)]
    items.write_text("\n".join(map(repr, about)))  # Python literals, as the older files
    return reviews, items


def test_amazon_reviews(tmp_path):
    reviews, items = amazon(tmp_path)
    found = read_amazon(reviews, items)
    assert len(found.users) == 8 and found.items[0] == "i0" and found.categories[0] == "c0"
    assert found.behaviours.time[:5].tolist() == [0, 1, 2, 3, 4]
    assert len(read_amazon(reviews, items, max_rows=5).users) == 1
    splits = AmazonReviews(reviews=str(reviews), items=str(items), history=3).load()
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [32, 16, 16]
    names = [field.name for field in splits.schema.fields]
    assert names == ["item", "category", "items", "categories"]
    row = splits.test[0]
    assert row["items"].shape == row["categories"].shape == (3,)
    with items.open("a") as file:
        file.write("\n{broken")
    with pytest.raises(StoredDataError, match=r"meta\.json, line 12"):
        read_amazon(reviews, items)


def test_taobao(tmp_path):
    path = tmp_path / "UserBehavior.csv"
    lines = [
        f"{u},{(3 * u + 2 * t) % 11},{t % 2},{'pv' if t < 5 else 'buy'},{1511544070 + t}"
        for u in range(8)
        for t in range(6)
    ]
    path.write_text("\n".join(lines) + "\n")
    assert len(read_taobao(path).behaviours.user) == 40
    assert len(read_taobao(path, kinds=("pv", "buy")).behaviours.user) == 48
    splits = Taobao(path=str(path), history=4, targets=1).load()
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [16] * 3
    with pytest.raises(StoredDataError, match="no behaviour of the kinds fav"):
        read_taobao(path, kinds=("fav",))
    path.write_text("1,2,3\n")
    with pytest.raises(StoredDataError, match="line 1: five columns"):
        read_taobao(path)
    with pytest.raises(MissingDataError, match=r"there is no .*x\.csv\. Expected: the file UserB"):
        Taobao(path=str(tmp_path / "x.csv")).load()


def criteo_line(label, count, category):
    return "\t".join([label, count, *["3"] * 12, category, *["68fd1e64"] * 25])


def test_criteo(tmp_path):
    path = tmp_path / "train.txt"
    lines = [criteo_line(str(i % 2), str(i) if i else "", "" if i == 1 else "a") for i in range(20)]
    path.write_text("\n".join(lines) + "\n")
    fields, labels = read_criteo(path)
    assert len(fields) == 39 and labels.tolist() == [0.0, 1.0] * 10
    assert math.isnan(fields["I1"][0]) and fields["I1"][1:4] == [1, 2, math.floor(math.log(3) ** 2)]
    assert fields["C1"][:3] == ["a", None, "a"]
    task = Criteo(path=str(path), min_count=1)
    splits = task.load()
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [16, 2, 2]
    assert splits.sha256 == task.load().sha256
    path.write_text("1\t2\n")
    with pytest.raises(StoredDataError, match="line 1: a label"):
        read_criteo(path)
    with pytest.raises(OptionError, match=r"criteo: path must name your copy: the file train\.txt"):
        Criteo().load()
