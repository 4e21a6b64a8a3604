"""The schema of a table: kinds and vocabularies from the training rows, and cells that cannot be one named by their column."""

from datetime import date, datetime
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
import torch

from regard import OptionError, RegardError
from regard.lab.data import Schema
from regard.nn.fields import Categorical, Numeric, Sequence

TABLE = {
    "item": ["a", "b", "a", None, "z"],
    "age": [20.0, 40.0, float("nan"), 60.0, 80.0],
    "clicks": [1, 2, 2, 3, 9],
    "history": [["b", "c"], [], ["c", None, "y"], ["a"], ["z", "b"]],
    "tags": [np.array([1, 2]), (2,), [], [1], [7]],
}


def make(table=TABLE, **options):
    return Schema.infer(table, train=slice(0, 4), of={"history": "item"}, **options)


def test_fields_follow_the_columns():
    item, clicks = Categorical("item", 6), Categorical("clicks", 5)  # a b c y; 1 2 3
    tags = Sequence("tags", Categorical("tags", 4))
    assert make().fields == (item, Numeric("age"), clicks, Sequence("history", item), tags)
    assert make(numeric=("age", "clicks")).fields[2] == Numeric("clicks")


def test_vocabularies_and_scales_come_from_the_training_rows_alone():
    schema = make()
    ids, batch = schema.ids["item"], schema.encode(TABLE)
    assert set(ids) == {"a", "b", "c", "y"}
    assert batch["item"].tolist() == [ids["a"], ids["b"], ids["a"], 0, 1]
    kept = [[0, 0, 0], [ids["c"], 0, ids["y"]], [1, ids["b"], 0]]  # what is missing has its place
    assert batch["history"][[1, 2, 4]].tolist() == kept
    age = batch["age"]
    assert age.dtype == torch.float32 and age[2].isnan()
    torch.testing.assert_close(age[[0, 1, 3]].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(age[[0, 1, 3]].std(unbiased=False), torch.tensor(1.0))


@pytest.mark.parametrize("value", [0.1, 0.3, 1 / 3, 37.2])
def test_a_column_of_one_number_is_not_scaled(value):
    schema = Schema.infer({"price": [value] * 200})
    assert schema.encode({"price": [value, value + 0.5]})["price"].tolist() == [0.0, 0.5]


def test_counts_are_of_the_training_rows():
    schema = make(min_count=2)
    ids, counts = schema.ids["item"], schema.counts["item"]
    assert {value: int(counts[i]) for value, i in ids.items()} == {"a": 3, "b": 2, "c": 2}
    assert counts[:2].tolist() == [0, 1]  # y is rare
    assert schema.encode(TABLE)["history"][2].tolist() == [ids["c"], 0, 1]


def test_missing_values_of_pandas_are_missing():
    words = pd.Series(["x", None, "y"], dtype="string")
    table = pd.DataFrame({"word": words, "flag": pd.Series([True, None, False], dtype="boolean")})
    batch = Schema.infer(table).encode(table)
    assert batch["word"].tolist() == batch["flag"].tolist() == [2, 0, 3]


WHEN = [
    [datetime(2024, 1, day) for day in range(1, 9)],
    [date(2024, 1, day) for day in range(1, 9)],
    np.array([f"2024-01-0{day}" for day in range(1, 9)], dtype="datetime64[ns]"),
    [None, *(np.datetime64(f"2024-01-0{day}") for day in range(1, 8))],
    [f"2024-01-0{day}" for day in range(1, 9)],
    [f"2024-01-01T0{hour}:00:00" for hour in range(8)],
    np.arange(8).astype("timedelta64[h]"),
]
REFUSED = [
    ({"a": [1], "b": [1, 2]}, {}, "equal length"),
    ({"a": [1, [2]]}, {}, "'a' holds lists in some rows only"),
    ({"a": [None, None]}, {}, "'a' holds nothing"),
    ({"a": [[{1}], [2]]}, {}, r"'a' holds \{1\}, which cannot be a value"),
    ({"a": [1e300, 1.0]}, {}, "'a' holds numbers of up to 1e\\+300"),
    *(({"a": [1.0, odd]}, {}, "'a' holds inf: numbers must be finite, or None") for odd in (float("inf"), -np.inf)),
    *(({"a": when, "x": [1.0] * 8}, {}, r"'a' holds dates or times \(.*\): .* month, weekday") for when in WHEN),
    (TABLE, {"of": {"history": "itm"}}, r"unknown column 'itm'\. Did you mean 'item'"),
    (TABLE, {"of": {"item": "age"}}, "'item' is categorical and 'age' is numeric"),
    (TABLE, {"numeric": "age"}, "numeric .* must be a sequence of names"),
    (np.zeros((5, 2)), {}, "a table is a dict of columns or a pandas DataFrame, got ndarray"),
    *((odd, {}, f"got {type(odd).__name__}") for odd in ([1, 2], None)),
    ({}, {}, "at least one column"),
    *((TABLE, {"train": rows}, "train must hold numbers of rows") for rows in ([True, False], [0, 99], np.array([True]), [], slice(0))),
    (TABLE, {"train": 3}, r"train \(3\) must be a slice"),
    *((TABLE, {"train": slice(*odd)}, "train must hold numbers of rows") for odd in (("a", None), (None, None, 0))),
    ({"a": [Decimal(1), None]}, {}, "'a' holds numbers of type Decimal: give floats"),
    (pd.DataFrame([[1, 2]], columns=["a", "a"]), {}, "has two 'a'"),
    *(({"a": odd}, {}, f"'a' must hold a value for each row, got {type(odd).__name__}") for odd in (3, "xx")),
    *(({"a": odd}, {}, "'a' must be a dense tensor with values") for odd in (
        torch.zeros(4, device="meta"), torch.eye(4).to_sparse(), torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8))),
]  # fmt: skip


@pytest.mark.parametrize("case", range(len(REFUSED)))
def test_what_is_no_table_or_no_option_is_named(case):
    table, options, message = REFUSED[case]
    with pytest.raises(RegardError, match=message):
        Schema.infer(table, **options)


@pytest.mark.parametrize(("cells", "message"), [
    ({"history": ["b", []]}, "'history' holds lists in some rows only: 'b' is none"),
    ({"item": ["a", ["b"]]}, r"'item' holds single values, and \['b'\] is none"),
    *(({"age": [1.0, word]}, f"'age' holds '{word}', which is no number") for word in ("old", "3_0")),
    ({"age": [1.0, np.inf]}, "'age' holds inf"),
])  # fmt: skip
def test_cells_of_another_kind_are_refused_by_their_column(cells, message):
    given = {name: column[:2] for name, column in TABLE.items()}
    with pytest.raises(OptionError, match=message):
        make().encode(given | cells)
    with pytest.raises(RegardError, match="the table has no column 'age'"):
        make().encode({"item": ["a"]})
