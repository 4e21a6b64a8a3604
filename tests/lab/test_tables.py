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
    assert set(model.get_params()) >= {"model", "train", "of", "seed"}
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


REFUSED = [
    (TABLE, CLICKED + 1, "labels must be 0, 1 or missing, got 2"),
    (TABLE, np.zeros((3, 2, 2)), r"y must have shape \[n\] or \[n K\], got \[3, 2, 2\]"),
    (TABLE, CLICKED[:-1], "'item' has 1500 rows, and y has 1499"),
    (TABLE, ["yes"] * 1500, "labels must be 0, 1 or missing"),
    (TABLE, None, "y must have shape"),
    (TABLE, 1, "y must have shape"),
    (TABLE, [[0, 1], [1]], "labels must be 0, 1 or missing, all of one length"),
    (TABLE, {"a": [0, 1], "b": [1]}, "labels must be 0, 1 or missing, all of one length"),
    (TABLE, {}, "labels must be 0, 1 or missing"),
    (TABLE, np.zeros((1500, 0)), "y must have shape"),
    (np.zeros((1500, 2)), CLICKED, "a table is a dict of columns or a pandas DataFrame, got ndarray"),
    ([1, 2], CLICKED, "got list"),
    (None, CLICKED, "got NoneType"),
    ({}, CLICKED, "at least one column"),
    ({"a": 3}, CLICKED, "'a' must hold a value for each row, got int"),
    ({"a": "x" * 1500}, CLICKED, "'a' must hold a value for each row, got str"),
    ({"a": [{}] * 1500}, CLICKED, "which cannot be a value"),
    ({"when": [np.datetime64("2020-01-01"), None] * 750}, CLICKED, "column 'when' holds dates or times"),
    ({"price": [1e300, *TABLE["price"][1:]]}, CLICKED, "'price' holds numbers of up to 1e\\+300"),
]  # fmt: skip


@pytest.mark.parametrize("table, labels, message", REFUSED)
def test_what_does_not_fit_is_refused(table, labels, message):
    of = {"seen": "item"} if table is TABLE else None
    with pytest.raises(RegardError, match=message):
        make(CONFIGS[0], of=of).fit(table, labels)


@pytest.fixture(scope="module")
def fitted():
    return make(CONFIGS[0]).fit(TABLE, {"a": CLICKED, "b": BOUGHT})


def test_figures_are_of_rows_that_belong_together(fitted):
    with pytest.raises(ShapeError, match="2 labels are given, and 1 were fitted"):
        make(CONFIGS[0]).fit(TABLE, CLICKED).evaluate(OTHER, BOTH_THERE)
    with pytest.raises(OptionError, match="labels are called b, c, and those fitted a, b"):
        fitted.evaluate(OTHER, {"b": BOUGHT_THERE, "c": CLICKED_THERE})
    with pytest.raises(ShapeError, match="'item' has 400 rows, and y has 399"):
        fitted.evaluate(OTHER, BOTH_THERE[:399])
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
    "option, values, message",
    [
        ("model", ("din", None, DINConfig), r"model .* must be a ModelConfig"),
        (
            "model",
            (ClassifierConfig(vocab_size=3, num_classes=2),),
            "classifier is no model of tables",
        ),
        ("train", (3, "x"), r"train .* must be a TrainConfig or None"),
        ("valid_share", ("x", float("nan"), None, 1.0), "valid_share .* must be between 0 and 1"),
        ("seed", ("x", -1, 1.5), "seed .* must be an integer of at least 0"),
        ("of", ("h", {1: "item"}), "of must be a mapping"),
        ("of", ({"seen": ["item"]},), "unknown column"),
        ("numeric", ("price", 5), "numeric .* must be a tuple of column names"),
        ("min_count", ("x", 0), "min_count .* must be a positive integer"),
        ("progress", ("x",), "progress .* must be True or False"),
    ],
)
def test_options_that_cannot_be_used_are_refused(option, values, message):
    for value in values:
        model = make(CONFIGS[3]).set_params(**{option: value})
        with pytest.raises(RegardError, match=message):
            model.fit(TABLE, CLICKED)
    assert torch.is_grad_enabled()


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
