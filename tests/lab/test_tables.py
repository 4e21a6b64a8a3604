"""Models of tables as scikit-learn knows estimators; trained on planted rules, so that learning is seen."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import cross_val_score

import regard.models as m
from regard import OptionError, RegardError, ShapeError
from regard.lab.tables import TableClassifier
from regard.lab.train import TrainConfig


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
LINEAR = m.LogisticRegressionConfig()
CONFIGS = [
    LINEAR,
    m.FactorizationMachineConfig(dim=4),
    m.AutoIntConfig(dim=8, head_dim=8, num_layers=1, hidden_dims=(8,)),
    m.DINConfig(history=("seen",), dim=8, hidden_dims=(16,)),
    m.MMoEConfig(num_tasks=1, dim=4),
]


def make(config=LINEAR, **options):
    return TableClassifier(config, **({"train": QUICK, "of": {"seen": "item"}} | options))


@pytest.fixture(scope="module")
def fitted():
    return make().fit(TABLE, {"a": CLICKED, "b": BOUGHT})


@pytest.fixture(scope="module")
def single():
    return make().fit(TABLE, CLICKED)


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
    for folder, why in ((tmp_path / "model", "is there already"), (5, r"folder \(5\) must be")):
        with pytest.raises(OptionError, match=why):
            model.save(folder)


def test_it_is_an_estimator(single):
    assert set(single.get_params()) >= {"model", "train", "of", "seed"}
    assert "LogisticRegressionConfig" in repr(single)
    copy = clone(single).set_params(seed=3)
    assert copy.seed == 3 and single.seed == 0 and copy.model == single.model
    p = single.predict_proba(OTHER)
    assert np.array_equal(clone(single).fit(TABLE, CLICKED).predict_proba(OTHER), p)
    assert p.shape == (400, 2) and np.allclose(p.sum(1), 1) and (single.classes_ == [0, 1]).all()
    assert (single.predict(OTHER) == p.argmax(1)).all()
    found = single.evaluate(OTHER, CLICKED_THERE)["label"]
    assert single.score(OTHER, CLICKED_THERE) == pytest.approx(found.auc)


def test_the_schema_knows_the_rows_that_are_trained_on_alone():
    table = {"id": list(range(100)), "x": [0.0] * 100}
    model = make(of={}, valid_share=0.2, train=TrainConfig(steps=1, batch_size=10))
    assert len(model.fit(table, np.arange(100) % 2).schema_.ids["id"]) == 80


def test_data_frames_and_named_labels(fitted):
    frame, other, labels = map(pd.DataFrame, (TABLE, OTHER, {"a": CLICKED, "b": BOUGHT}))
    model = make().fit(frame, labels)
    assert np.array_equal(model.predict_proba(other), fitted.predict_proba(OTHER))
    found = model.evaluate(other, BOTH_THERE, groups=other["item"])
    assert list(found) == ["a", "b"] and 0 < found["a"].gauc < 1
    assert cross_val_score(make(), frame, CLICKED, cv=2, error_score="raise").min() > 0.6


RARE = np.zeros(1500)
RARE[np.random.default_rng(0).permutation(1500)[0]] = 1  # the first row held out
REFUSED = [
    (CLICKED + 1, "labels must be 0, 1 or missing, got 2"),
    (np.zeros((3, 2, 2)), r"y must have shape \[n\] or \[n K\], got \[3, 2, 2\]"),
    (CLICKED[:-1], "'item' has 1500 rows, and y has 1499"),
    *((odd, "labels must be 0, 1 or missing") for odd in (["yes"] * 1500, CLICKED + 1j)),
    *((odd, "y must have shape") for odd in (None, 1, np.zeros((1500, 0)))),
    *((odd, "labels must be 0, 1 or missing, all of one length") for odd in ([[0, 1], [1]], {"a": [0, 1], "b": [1]})),
    ({}, "labels must be 0, 1 or missing"),
    ({0: CLICKED, "0": CLICKED}, "labels must have a name each, as text, and have 0, 0"),
    (torch.zeros(1500, requires_grad=True), "labels must be 0, 1 or missing, all of one length"),
    (np.zeros(1500), "label: of the 1350 rows trained on, 0 are 1 and 1350 are 0"),
    (RARE, "label: of the 1350 rows trained on, 0 are 1"),
    (np.stack([CLICKED, RARE[::-1]], 1), "label_1: of the .* valid_share"),
]  # fmt: skip


def test_a_fit_that_ends_in_an_error_leaves_the_last_whole(fitted, tmp_path):
    model = copy.deepcopy(fitted).set_params(train=TrainConfig(steps=1, batch_size=10**6))
    with pytest.raises(OptionError, match="batch_size is 1000000"):
        model.fit(OTHER, 1 - CLICKED_THERE)
    assert np.array_equal(model.predict_proba(OTHER), fitted.predict_proba(OTHER))
    model.set_params(model=m.AutoIntConfig(dim=4)).save(tmp_path / "saved")
    again = TableClassifier.load(tmp_path / "saved")
    assert np.array_equal(again.predict_proba(OTHER), fitted.predict_proba(OTHER))


@pytest.mark.parametrize(("labels", "message"), REFUSED, ids=range(len(REFUSED)))
def test_labels_that_do_not_fit_are_refused_before_training(labels, message):
    model = make()
    with pytest.raises(RegardError, match=message):
        model.fit(TABLE, labels)
    assert not hasattr(model, "module_")


def test_figures_are_of_rows_that_belong_together(fitted, single):
    for model, labels, more, message in (
        (single, BOTH_THERE, {}, "2 labels are given, and 1 were fitted"),
        (fitted, {"b": BOUGHT_THERE, "c": CLICKED_THERE}, {}, "labels are called b, c, and those fitted a, b"),
        (fitted, BOTH_THERE[:399], {}, "'item' has 400 rows, and y has 399"),
        (fitted, BOTH_THERE, {"groups": [1, 2, 3]}, "groups has 3 rows, and y has 400"),
        *((fitted, BOTH_THERE, {"groups": [odd, *OTHER["item"][1:]]}, "groups must name a group for each row")
          for odd in (None, float("nan"), ["a"])),
    ):  # fmt: skip
        with pytest.raises(RegardError, match=message):
            model.evaluate(OTHER, labels, **more)
    mixed = [0, *OTHER["item"][1:]]
    assert 0 < fitted.evaluate(OTHER, BOTH_THERE, groups=mixed)["a"].gauc < 1
    hidden = np.arange(BOTH_THERE.size).reshape(BOTH_THERE.shape) % 3 == 0
    masked, missing = np.ma.array(BOTH_THERE, mask=hidden), np.where(hidden, np.nan, BOTH_THERE)
    assert fitted.evaluate(OTHER, masked) == fitted.evaluate(OTHER, missing)


def test_predictions_refuse_what_the_schema_refuses(fitted):
    with pytest.raises(OptionError, match="classifier is no model of tables"):
        make(m.ClassifierConfig(vocab_size=3, num_classes=2)).fit(TABLE, CLICKED)
    with pytest.raises(OptionError, match="'price' holds 'dear', which is no number"):
        fitted.predict(OTHER | {"price": [*list(OTHER["price"])[:-1], "dear"]})
    with pytest.raises(ShapeError, match="a table is a dict"):
        fitted.predict(None)


def test_a_launcher_is_refused(monkeypatch):
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    labels = [0, 1] * 20
    with pytest.raises(OptionError, match="trains in one process, without a launcher"):
        TableClassifier(m.AutoIntConfig(dim=4, head_dim=4)).fit({"x": labels}, labels)
