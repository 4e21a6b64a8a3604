import numpy as np
import pytest
import torch

from regard import OptionError, ShapeError, UnknownNameError
from regard.lab.data import Schema
from regard.nn.fields import Categorical, Numeric, Sequence

TABLE = {
    "item": ["a", "b", "a", None, "z"],
    "age": [20.0, 40.0, float("nan"), 60.0, 80.0],
    "clicks": [1, 2, 2, 3, 9],
    "history": [["b", "c"], [], ["c", None, "y"], ["a"], ["z", "b"]],
    "tags": [np.array([1, 2]), (2,), [], [1], [7]],
}


def make(**options):
    return Schema.infer(TABLE, train=slice(0, 4), of={"history": "item"}, **options)


def test_fields_follow_the_columns():
    item, clicks = Categorical("item", 6), Categorical("clicks", 5)  # a b c y; 1 2 3
    tags = Sequence("tags", Categorical("tags", 4))
    assert make().fields == (item, Numeric("age"), clicks, Sequence("history", item), tags)
    assert make(numeric=("age", "clicks")).fields[2] == Numeric("clicks")


def test_vocabularies_and_scales_come_from_the_training_rows_alone():
    schema = make()
    assert set(schema.ids["item"]) == {"a", "b", "c", "y"}
    batch = schema.encode(TABLE)
    ids = schema.ids["item"]
    assert batch["item"].tolist() == [ids["a"], ids["b"], ids["a"], 0, 1]
    assert batch["history"].tolist()[2] == [ids["c"], ids["y"]]
    assert batch["history"].tolist()[1] == [0, 0] and batch["history"].tolist()[4] == [1, ids["b"]]
    age = batch["age"]
    assert age.dtype == torch.float32 and age[2].isnan()
    torch.testing.assert_close(age[[0, 1, 3]].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(age[[0, 1, 3]].std(unbiased=False), torch.tensor(1.0))


def test_counts_are_of_the_training_rows():
    schema = make(min_count=2)
    ids, counts = schema.ids["item"], schema.counts["item"]
    assert {value: int(counts[i]) for value, i in ids.items()} == {"a": 3, "b": 2, "c": 2}
    assert counts[:2].tolist() == [0, 1]  # y is rare
    assert schema.encode(TABLE)["history"][2].tolist() == [ids["c"], 1]


def test_a_data_frame_is_a_table():
    pandas = pytest.importorskip("pandas")
    schema = Schema.infer(pandas.DataFrame(TABLE), train=range(4), of={"history": "item"})
    assert schema.fields == make().fields
    for name, x in schema.encode(pandas.DataFrame(TABLE)).items():
        torch.testing.assert_close(x, make().encode(TABLE)[name], equal_nan=True)


def test_what_is_wrong_is_named():
    with pytest.raises(UnknownNameError, match=r"unknown column 'itm'\. Did you mean 'item'"):
        Schema.infer(TABLE, of={"history": "itm"})
    with pytest.raises(OptionError, match="'item' is categorical and 'age' is numeric"):
        Schema.infer(TABLE, of={"item": "age"})
    with pytest.raises(ShapeError, match="equal length"):
        Schema.infer({"a": [1], "b": [1, 2]})
    with pytest.raises(ShapeError, match="no column 'age'"):
        make().encode({"item": ["a"]})
    with pytest.raises(OptionError, match="lists in some rows only"):
        Schema.infer({"a": [1, [2]]})
    with pytest.raises(OptionError, match="holds nothing"):
        Schema.infer({"a": [None, None]})


@pytest.mark.parametrize("odd", [float("inf"), -float("inf"), np.inf])
def test_an_infinite_number_is_refused_instead_of_erasing_its_column(odd):
    ages = [float(i) for i in range(199)]
    with pytest.raises(
        OptionError, match="column 'age' holds inf: numbers must be finite, or None"
    ):
        Schema.infer({"age": [*ages, odd]})
    schema = Schema.infer({"age": ages})
    with pytest.raises(OptionError, match="column 'age' holds inf"):
        schema.encode({"age": [odd]})


def test_cells_of_another_kind_are_refused_by_their_column():
    for cells, message in [
        ({"history": ["b", []]}, "'history' holds lists in some rows only: 'b' is none"),
        ({"item": ["a", ["b"]]}, r"'item' holds single values, and \['b'\] is none"),
        ({"age": [1.0, "old"]}, "'age' holds 'old', which is no number"),
    ]:
        with pytest.raises(OptionError, match=message):
            make().encode({name: column[:2] for name, column in TABLE.items()} | cells)
    with pytest.raises(OptionError, match=r"'tags' holds \{1\}, which cannot be a value"):
        Schema.infer({"tags": [[{1}], [2]]})
    with pytest.raises(OptionError, match="numeric"):
        make(numeric="age")
    with pytest.raises(OptionError, match="min_count"):
        make(min_count=0)
