"""Models of tables as scikit-learn knows estimators; trained on planted rules, so that learning is seen."""

from datetime import date, datetime

import numpy as np
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

from regard import OptionError, RegardError, ShapeError, StoredDataError
from regard.lab.data import Schema
from regard.lab.tables import TableClassifier
from regard.lab.train import TrainConfig
from regard.models import (
    AutoIntConfig,
    ClassifierConfig,
    DINConfig,
    FactorizationMachineConfig,
    LogisticRegressionConfig,
    MMoEConfig,
)


def shop(rows, seed=0):
    """Clicked if the item is among the last seen, or if it is cheap; bought goes by colour and is missing in places."""
    rng = np.random.default_rng(seed)
    item = rng.integers(0, 12, rows)
    seen = [rng.choice(12, size, replace=False).tolist() for size in rng.integers(0, 5, rows)]
    price = rng.normal(10, 3, rows)
    colour = np.array(["red", "blue", "green", None], dtype=object)[rng.integers(0, 4, rows)]
    clicked = np.array([i in past for i, past in zip(item, seen, strict=True)]) | (price < 7)
    bought = np.where(rng.random(rows) < 0.1, np.nan, colour == "red")
    table = {"item": [f"i{i}" for i in item], "price": price, "colour": colour}
    table["seen"] = [[f"i{i}" for i in past] for past in seen]
    return table, clicked.astype(float), bought.astype(float)


TABLE, CLICKED, BOUGHT = shop(1500)
OTHER, CLICKED_THERE, BOUGHT_THERE = shop(400, seed=1)
BOTH, BOTH_THERE = (np.stack(y, 1) for y in ((CLICKED, BOUGHT), (CLICKED_THERE, BOUGHT_THERE)))
QUICK = TrainConfig(steps=60, batch_size=128, lr=3e-2, weight_decay=0.0, eval_every=60)
CONFIGS = [
    LogisticRegressionConfig(),
    FactorizationMachineConfig(dim=4),
    AutoIntConfig(dim=8, head_dim=8, num_layers=1, hidden_dims=(8,)),
    DINConfig(history=("seen",), dim=8, hidden_dims=(16,)),
    MMoEConfig(num_tasks=1, dim=4),
]


def make(config, **options):
    return TableClassifier(config, **({"train": QUICK, "of": {"seen": "item"}} | options))


@pytest.mark.parametrize("config", CONFIGS, ids=lambda c: c.name)
def test_each_model_fits_predicts_and_comes_back_the_same(config, tmp_path):
    model = make(config)
    with pytest.raises(NotFittedError):
        model.predict(OTHER)
    assert model.fit(TABLE, BOTH) is model
    p = model.predict_proba(OTHER)
    assert p.shape == (400, 2) and ((p > 0) & (p < 1)).all()
    assert (model.predict(OTHER) == (p > 0.5)).all()
    found = model.evaluate(OTHER, BOTH_THERE)
    assert found["label_0"].auc > 0.6 and found["label_1"].auc > 0.95
    assert found["label_1"].rows == (~np.isnan(BOUGHT_THERE)).sum()
    model.save(tmp_path / "model")
    assert np.array_equal(TableClassifier.load(tmp_path / "model").predict_proba(OTHER), p)
    with pytest.raises(OptionError, match="is there already"):
        model.save(tmp_path / "model")
    weights = tmp_path / "model" / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    with pytest.raises(StoredDataError, match=r"model\.safetensors"):
        TableClassifier.load(tmp_path / "model")


def test_a_column_whose_deviation_overflows_is_refused():
    prices = TABLE["price"].copy()
    prices[3] = 1e300
    with pytest.raises(OptionError, match="'price' holds numbers of up to 1e\\+300"):
        make(CONFIGS[0]).fit({**TABLE, "price": prices}, CLICKED)


def test_din_finds_the_item_in_the_history_where_a_linear_model_cannot():
    linear = make(CONFIGS[0]).fit(TABLE, CLICKED)
    din = make(
        DINConfig(history=("seen",), dim=8, hidden_dims=(16,)),
        train=TrainConfig(steps=160, batch_size=128, lr=2e-2, weight_decay=0.0, eval_every=80),
    )
    din.fit(TABLE, CLICKED)
    assert din.score(OTHER, CLICKED_THERE) > linear.score(OTHER, CLICKED_THERE) + 0.05


def test_it_is_an_estimator():
    model = make(CONFIGS[0])
    assert set(model.get_params()) >= {"model", "train", "of", "batch_l2", "seed"}
    copy = clone(model).set_params(seed=3)
    assert copy.seed == 3 and model.seed == 0 and copy.model == model.model
    assert "LogisticRegressionConfig" in repr(model)
    one, two = (clone(model).fit(TABLE, CLICKED) for _ in range(2))
    assert np.array_equal(one.predict_proba(OTHER), two.predict_proba(OTHER))
    p = one.predict_proba(OTHER)
    assert p.shape == (400, 2) and np.allclose(p.sum(1), 1) and (one.classes_ == [0, 1]).all()
    assert (one.predict(OTHER) == p.argmax(1)).all()
    assert one.score(OTHER, CLICKED_THERE) == pytest.approx(
        one.evaluate(OTHER, CLICKED_THERE)["label"].auc
    )


def test_the_schema_knows_the_rows_that_are_trained_on_alone():
    table = {"id": list(range(100)), "x": [0.0] * 100}
    model = TableClassifier(
        LogisticRegressionConfig(), train=TrainConfig(steps=1, batch_size=10), valid_share=0.2
    )
    model.fit(table, np.arange(100) % 2)
    assert len(model.schema_.ids["id"]) == 80


def test_data_frames_and_named_labels():
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE)
    labels = pandas.DataFrame({"clicked": CLICKED, "bought": BOUGHT})
    model = make(CONFIGS[0]).fit(frame, labels)
    same = make(CONFIGS[0]).fit(TABLE, {"clicked": CLICKED, "bought": BOUGHT})
    other = pandas.DataFrame(OTHER)
    assert np.array_equal(model.predict_proba(other), same.predict_proba(OTHER))
    found = model.evaluate(other, BOTH_THERE, groups=other["item"])
    assert list(found) == ["clicked", "bought"] and 0 < found["clicked"].gauc < 1
    scores = cross_val_score(make(CONFIGS[0]), frame, CLICKED, cv=2, error_score="raise")
    assert scores.min() > 0.6


def test_what_does_not_fit_is_refused():
    model = make(CONFIGS[0])
    for given, message in [
        ((TABLE, CLICKED + 1), "labels must be 0, 1 or missing, got 2"),
        ((TABLE, np.zeros((3, 2, 2))), r"y must have shape \[n\] or \[n K\], got \[3, 2, 2\]"),
        ((TABLE, CLICKED[:-1]), "'item' has 1500 rows, and y has 1499"),
    ]:
        with pytest.raises((OptionError, ShapeError), match=message):
            model.fit(*given)
    with pytest.raises(OptionError, match="batch_l2 is DIN's"):
        make(CONFIGS[0], batch_l2=1.0).fit(TABLE, CLICKED)
    with pytest.raises(OptionError, match="classifier is no model of tables"):
        make(ClassifierConfig(vocab_size=3, num_classes=2)).fit(TABLE, CLICKED)
    with pytest.raises(OptionError, match="valid_share"):
        make(CONFIGS[0], valid_share=1.0).fit(TABLE, CLICKED)
    with pytest.raises(ShapeError, match="1 labels are given, and 2 were fitted"):
        model.fit(TABLE, BOTH).evaluate(OTHER, CLICKED_THERE)
    odd = TableClassifier(CONFIGS[0], train=QUICK)
    with pytest.raises(OptionError, match="column 'when' holds dates or times"):
        odd.fit({"when": [np.datetime64("2020-01-01"), None] * 750}, CLICKED)
    assert torch.is_grad_enabled()


@pytest.fixture(scope="module")
def fitted():
    return make(CONFIGS[0]).fit(TABLE, {"a": CLICKED, "b": BOUGHT})


def test_figures_are_of_rows_that_belong_together(fitted):
    for rows in (100, 200, 399):
        with pytest.raises(ShapeError, match=f"'item' has 400 rows, and y has {rows}"):
            fitted.evaluate(OTHER, BOTH_THERE[:rows])
    with pytest.raises(ShapeError, match="'item' has 400 rows, and y has 200"):
        fitted.score(OTHER, BOTH_THERE[:200])
    with pytest.raises(ShapeError, match="groups has 3 rows, and y has 400"):
        fitted.evaluate(OTHER, BOTH_THERE, groups=[1, 2, 3])
    for odd in (None, float("nan"), ["a"]):
        with pytest.raises(OptionError, match="groups must name a group for each row"):
            fitted.evaluate(OTHER, BOTH_THERE, groups=[odd, *OTHER["item"][1:]])
    mixed = [0, *OTHER["item"][1:]]
    assert 0 < fitted.evaluate(OTHER, BOTH_THERE, groups=mixed)["a"].gauc < 1


@pytest.mark.parametrize(
    "labels, message",
    [
        (["yes"] * 1500, "labels must be 0, 1 or missing"),
        (None, "y must have shape"),
        (1, "y must have shape"),
        ([[0, 1], [1]], "labels must be 0, 1 or missing, all of one length"),
        ({"a": [0, 1], "b": [1]}, "labels must be 0, 1 or missing, all of one length"),
        ({}, "labels must be 0, 1 or missing"),
        (np.zeros((1500, 0)), "y must have shape"),
    ],
)
def test_labels_that_are_none_are_refused(labels, message):
    with pytest.raises(RegardError, match=message):
        make(CONFIGS[0]).fit(TABLE, labels)


@pytest.mark.parametrize(
    "table, message",
    [
        (np.zeros((1500, 2)), "a table is a dict of columns or a pandas DataFrame, got ndarray"),
        ([1, 2], "got list"),
        (None, "got NoneType"),
        ({}, "at least one column"),
        ({"a": 3}, "'a' must hold a value for each row, got int"),
        ({"a": "x" * 1500}, "'a' must hold a value for each row, got str"),
        ({"a": [{}] * 1500}, "which cannot be a value"),
    ],
)
def test_what_is_no_table_is_refused(table, message):
    with pytest.raises(RegardError, match=message):
        TableClassifier(CONFIGS[0], train=QUICK).fit(table, CLICKED)


@pytest.mark.parametrize(
    "option, values, message",
    [
        ("model", ("din", None, DINConfig), r"model .* must be a ModelConfig"),
        ("train", (3, "x"), r"train .* must be a TrainConfig or None"),
        ("valid_share", ("x", float("nan"), None), "valid_share .* must be between 0 and 1"),
        ("seed", ("x", -1, 1.5), "seed .* must be an integer of at least 0"),
        ("of", ("h", {1: "item"}), "of must be a mapping"),
        ("of", ({"seen": ["item"]},), "unknown column"),
        ("numeric", ("price", 5), "numeric .* must be a tuple of column names"),
        ("min_count", ("x", 0), "min_count .* must be a positive integer"),
        ("batch_l2", ("x", -1.0, float("nan")), "batch_l2"),
        ("progress", ("x",), "progress .* must be True or False"),
    ],
)
def test_options_that_cannot_be_used_are_refused(option, values, message):
    for value in values:
        model = make(CONFIGS[3]).set_params(**{option: value})
        with pytest.raises(RegardError, match=message):
            model.fit(TABLE, CLICKED)


def test_predictions_refuse_what_the_schema_refuses(fitted):
    changed = OTHER | {"price": [*list(OTHER["price"])[:-1], "dear"]}
    with pytest.raises(OptionError, match="'price' holds 'dear', which is no number"):
        fitted.predict(changed)
    with pytest.raises(ShapeError, match="a table is a dict"):
        fitted.predict(None)


def test_labels_of_one_kind_are_refused_before_training():
    rare = np.zeros(1500)
    rare[np.random.default_rng(0).permutation(1500)[0]] = 1  # the first row held out
    for labels, message in [
        (np.zeros(1500), "label: of the 1350 rows trained on, 0 are 1 and 1350 are 0"),
        (rare, "label: of the 1350 rows trained on, 0 are 1"),
        (np.stack([CLICKED, rare[::-1]], 1), "label_1: of the .* valid_share"),
    ]:
        model = make(CONFIGS[0])
        with pytest.raises(OptionError, match=message):
            model.fit(TABLE, labels)
        assert not hasattr(model, "module_")


def test_two_words_are_labels_and_come_back_from_a_file(tmp_path):
    words = np.where(CLICKED == 1, "yes", "no").astype(object)
    words[:3] = None
    model, numbers = make(CONFIGS[0]), make(CONFIGS[0])
    model.fit(TABLE, list(words))
    numbers.fit(TABLE, np.where(words == None, np.nan, CLICKED))  # noqa: E711
    assert np.array_equal(model.predict_proba(OTHER), numbers.predict_proba(OTHER))
    assert list(model.classes_) == ["no", "yes"] and set(model.predict(OTHER)) == {"no", "yes"}
    there = ["yes" if one else "no" for one in CLICKED_THERE]
    assert model.score(OTHER, there) == numbers.score(OTHER, CLICKED_THERE)
    model.save(tmp_path / "model")
    back = TableClassifier.load(tmp_path / "model")
    assert list(back.predict(OTHER)) == list(model.predict(OTHER))
    with pytest.raises(OptionError, match="labels were fitted as 'no' and 'yes', got 'perhaps'"):
        back.score(OTHER, ["perhaps", *there[1:]])


@pytest.mark.parametrize(
    "when",
    [
        [datetime(2024, 1, day) for day in range(1, 9)],
        [date(2024, 1, day) for day in range(1, 9)],
        np.array([f"2024-01-0{day}" for day in range(1, 9)], dtype="datetime64[ns]"),
        [None, *(np.datetime64(f"2024-01-0{day}") for day in range(1, 8))],
        [f"2024-01-0{day}" for day in range(1, 9)],
        [f"2024-01-01T0{hour}:00:00" for hour in range(8)],
        np.arange(8).astype("timedelta64[h]"),
    ],
    ids=lambda when: type(when).__name__,
)
def test_dates_are_refused_with_what_to_do(when):
    with pytest.raises(OptionError, match=r"'when' holds dates or times \(.*\): .* month, weekday"):
        Schema.infer({"when": when, "x": [1.0] * 8})
