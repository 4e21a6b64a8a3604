"""The training loop: it learns, stops, refuses, and goes on where it was cut off; `tests.faults` kills it."""

import re
from collections.abc import Mapping
from dataclasses import field, replace
from itertools import count

import numpy as np
import pytest
import torch
from accelerate import tracking
from torch import nn

from regard.core import OptionError, ShapeError
from regard.lab.data.records import Examples, Ragged
from regard.lab.tasks import Digits, Splits
from regard.lab.train import DivergedError, checkpoint, display, fit, run_for, start
from regard.mixers.linear import Linear
from tests.lab.train.tiny import CONFIG, Majority, TinyModel, tiny_model


def assert_same_bits(one: nn.Module, other: nn.Module | checkpoint.Checkpoint) -> None:
    held = other.state_dict() if isinstance(other, nn.Module) else other.model
    torch.testing.assert_close(one.state_dict(), held, rtol=0, atol=0)


def train(run_dir, config=CONFIG, task=None, model=None, **options):
    model = model or tiny_model()
    return model, fit(model, task or Majority(), config, run_dir, progress=False, **options)


def newest(run_dir):
    return checkpoint.load(checkpoint.committed(run_dir / "checkpoints")[-1])


def test_the_loss_goes_down_and_the_best_weights_are_returned(tmp_path):
    task, untrained = Majority(), tiny_model()
    batch = task.collate(task.load().train)
    model, result = train(tmp_path, replace(CONFIG, steps=80))
    assert task.loss(model.eval(), batch) < 0.5 * task.loss(untrained.eval(), batch)
    assert result.valid_value == max(value for _, value in result.curve)
    assert (result.best_step, result.valid_value) in result.curve
    best = checkpoint.load(checkpoint.path_of(tmp_path / "checkpoints", result.best_step))
    assert_same_bits(model, best)
    assert result.notes == {}
    with torch.no_grad():
        assert result.value == task.score(model.eval(), [task.collate(task.load().test)])


@pytest.mark.parametrize("bucket", [None, 4])
def test_resuming_in_the_middle_of_an_epoch_continues_exactly_with_any_workers(tmp_path, bucket):
    class Cut(Majority):
        calls = count(1)

        def loss(self, model, batch):
            if next(self.calls) == 18:
                raise KeyboardInterrupt
            return super().loss(model, batch)

    config, other = replace(CONFIG, bucket=bucket), None if bucket else 4
    with pytest.raises(KeyboardInterrupt):
        train(tmp_path / "cut", config, task=Cut())
    assert newest(tmp_path / "cut").state["progress"]["step"] == 14  # of 12 an epoch
    start_of, later = tiny_model(seed=3), replace(config, workers=1)
    resumed, after = train(tmp_path / "cut", later, task=Cut(), model=start_of)
    whole, result = train(tmp_path / "whole", config)
    assert_same_bits(resumed, whole)
    assert replace(after, seconds=result.seconds) == result
    unlike, _ = train(tmp_path / "unlike", replace(config, seed=1))
    assert not torch.equal(unlike.head.weight, whole.head.weight)
    with pytest.raises(OptionError, match=rf"config.bucket is {bucket} there and {other} here"):
        train(tmp_path / "cut", replace(config, bucket=other), task=Cut())


def test_what_is_no_run_or_folder_is_named(tmp_path):
    with pytest.raises(OptionError, match=r"start: run .* must be a Run"):
        start("digits", tmp_path)
    with pytest.raises(OptionError, match=r"start: run_dir .5. must be"):
        start(run_for("recall"), 5)
    for wrong in ({"task": "digits"}, {"config": None, "model": nn.Linear}):
        with pytest.raises(OptionError, match=r"fit: .* must be a"):
            train(tmp_path, **wrong)
    frozen = TinyModel().requires_grad_(False)
    for odd in ({"model": frozen}, {"model": TinyModel().to("meta")}, {"origin": {"a": object()}}):
        with pytest.raises(OptionError, match=r"a model with parameters|must hold JSON values"):
            train(tmp_path, **odd)


def test_a_finished_run_trains_nothing_more_and_its_folder_takes_no_other(tmp_path, monkeypatch):
    first, result = train(tmp_path)
    for config, model, why in (
        (replace(CONFIG, lr=0.5), None, r"config.lr is 0.01 there and 0.5 here"),
        (CONFIG, TinyModel(dim=16), r"model.embed.weight is \[3, 8\] there and \[3, 16\] here"),
    ):
        with pytest.raises(OptionError, match=why):
            train(tmp_path, config, model=model)
    monkeypatch.setattr(Majority, "loss", lambda *_: pytest.fail("trained again"))
    again, same = train(tmp_path, replace(CONFIG, keep=1, log_every=3), model=tiny_model(seed=9))
    assert same == result
    assert_same_bits(first, again)


def test_early_stopping(tmp_path, monkeypatch):
    scores = iter([0.5, 0.7, 0.7, 0.6, 0.9])
    monkeypatch.setattr(Majority, "score", lambda *_: next(scores))
    _, result = train(tmp_path, replace(CONFIG, steps=1000, patience=2))
    assert result.stopped_early
    assert (result.best_step, result.steps, result.valid_value) == (20, 40, 0.7)
    assert [step for step, _ in result.curve] == [10, 20, 30, 40]


def test_after_step_is_called_once_after_each_optimiser_step(tmp_path):
    class Counting(Linear):
        seen = 0

        def _after_step(self):
            self.seen += 1

    mixer = Counting(8, num_heads=2)
    train(tmp_path, replace(CONFIG, steps=13), model=TinyModel(mixer))
    assert mixer.seen == 13


@pytest.mark.parametrize(("poisoned", "word"), [("loss", "loss"), ("gradient", "gradient norm")])
def test_what_is_not_finite_is_refused_with_its_step(tmp_path, poisoned, word):
    class Poisoned(Majority):
        calls = count(1)

        def loss(self, model, batch):
            loss = super().loss(model, batch)
            if next(self.calls) == 24:
                if poisoned == "loss":
                    return loss * float("nan")
                loss.register_hook(lambda gradient: gradient * float("inf"))
            return loss

    with pytest.raises(DivergedError, match=f"majority: the {word} of step 24 is (nan|inf)"):
        train(tmp_path, task=Poisoned())
    kept = newest(tmp_path)
    assert kept.state["progress"]["step"] <= 23
    assert all(value.isfinite().all() for value in kept.model.values())


@pytest.mark.parametrize("method, given, message", [
    ("loss", lambda task, model, batch: torch.zeros(2, requires_grad=True), "loss of majority must be a number"),
    ("loss", lambda task, model, batch: torch.tensor(1.0), "loss of majority must be a number with a gradient"),
    ("loss", lambda task, model, batch: nn.functional.cross_entropy(task.answer(model, batch), batch["labels"] + 7), "loss of majority: Target"),
    ("score", lambda task, model, batches: None, "score of majority must be a number"),
])  # fmt: skip
def test_a_task_of_ones_own_gives_numbers_or_is_refused(tmp_path, method, given, message):
    task = type("Own", (Majority,), {method: given})()
    with pytest.raises(ShapeError, match=message):
        train(tmp_path, task=task)


def test_a_run_of_other_options_or_code_of_its_task_is_another(tmp_path, monkeypatch):
    """Which data of the same content do not tell: the loss and the metric may."""

    class Weighed(Majority):
        weight: float = 0.0
        of: Mapping[str, float] = field(default_factory=dict)

    train(tmp_path, task=Weighed())
    with pytest.raises(OptionError, match=r"another run: options\.weight is 0\.0"):
        train(tmp_path, task=Weighed(weight=0.5))
    with pytest.raises(OptionError, match=r"another run: of\.all is None"):
        train(tmp_path, task=Weighed(of={"all": 5.0}))
    monkeypatch.setattr("regard.lab.train.loop.own_code", lambda of: "edited")
    with pytest.raises(OptionError, match="another run: code is "):
        train(tmp_path, task=Weighed())


@pytest.mark.parametrize("method, given", [("load", None), ("collate", None), ("trivial_baseline", float("nan"))])  # fmt: skip
def test_what_a_task_of_ones_own_lacks_is_named(method, given):
    task = type("Own", (Digits,), {method: lambda self, *_: given})()
    for _ in range(2):  # what was refused is not kept
        with pytest.raises(OptionError, match=f"digits: {method} must"):
            task.chance(Splits.of(task))


def test_a_part_without_a_label_is_named():
    part, none = (Examples(Ragged.even(np.ones((4, 3), int)), np.full(4, n)) for n in (1, -100))
    for splits in (Splits(part, part, none), Splits(none, part, part)):
        with pytest.raises(OptionError, match="at least one batch with a label, got none"):
            Digits().chance(splits)


def test_a_share_without_a_label_weighs_nothing():
    task, model = Majority(), tiny_model()
    batch = task.collate(task.load().train)
    loss = super(Majority, task).loss(model, batch | {"labels": batch["labels"] * 0 - 100})
    loss.backward()
    assert loss == 0 and all((p.grad == 0).all() for p in model.parameters() if p.grad is not None)


def test_a_budget_in_tokens_ends_with_the_step_that_reaches_it(tmp_path):
    _, result = train(tmp_path / "tokens", replace(CONFIG, steps=None, tokens=1000))
    assert 1000 <= result.tokens < 1000 + 8 * 9
    _, fewer = train(tmp_path / "fewer", replace(CONFIG, steps=result.steps - 1))
    assert fewer.tokens < 1000


def test_mixed_precision_and_back_in_one_process(tmp_path):
    seen, model = set(), tiny_model()
    model.head.register_forward_hook(lambda m, x, y: seen.add(y.dtype) if m.training else None)
    train(tmp_path / "half", replace(CONFIG, precision="bf16", steps=10), model=model)
    assert seen == {torch.bfloat16} and model.head.weight.dtype == torch.float32
    seen.clear()
    train(tmp_path / "full", replace(CONFIG, steps=10), model=model)
    assert seen == {torch.float32}


def test_logs_and_bar(tmp_path, capsys):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    fit(tiny_model(), Majority(), replace(CONFIG, log_dir="logs"), tmp_path)
    events = EventAccumulator(str(tmp_path / "logs")).Reload()
    assert set(events.Tags()["scalars"]) == {"train/loss", "train/rate", "valid/accuracy"}
    assert [e.step for e in events.Scalars("valid/accuracy")] == [10, 20, 30, 40]
    shown = capsys.readouterr().out
    assert re.search(r"majority +loss", shown) and re.search(r"[\d,]+ tokens/s", shown)


def test_trackers_are_told_what_tensorboard_is(tmp_path, monkeypatch):
    told, values, ends = {}, [], []

    class Fake(tracking.GeneralTracker):
        name, requires_logging_directory, tracker = "mlflow", False, None
        __init__ = lambda self, project: values.append((project, None))  # noqa: E731
        store_init_configuration = staticmethod(told.update)
        log = lambda self, new, step=None: values.extend((name, step) for name in new)  # noqa: E731
        finish = lambda self: ends.append(len(values))  # noqa: E731

    monkeypatch.setattr(tracking, "_available_trackers", [tracking.LoggerType.MLFLOW])
    monkeypatch.setitem(tracking.LOGGER_TYPE_TO_CLASS, "mlflow", Fake)
    monkeypatch.setattr(display, "find_spec", lambda name: name == "mlflow" or None)
    _, result = train(tmp_path / "run", report_to=["mlflow"])
    at = [step for name, step in values if name == "valid/accuracy"]
    assert at == [step for step, _ in result.curve] and ("train/loss", 5) in values
    assert values[0] == ("regard", None) and values[-1] == ("test/accuracy", 40)
    assert ends == [len(values)] and told["lr"] == CONFIG.lr and told["task"] == "majority"
    for name, why in (("wandb", "not installed"), ("wandbb", "neither wandb nor mlflow")):
        with pytest.raises(OptionError, match=f"report_to .*{why}"):
            train(tmp_path / "refused", report_to=[name])
    assert not (tmp_path / "refused").exists()


@pytest.mark.parametrize("log_dir", ["link", "/tmp/logs", "../logs"])
def test_logs_do_not_leave_the_folder(tmp_path, log_dir):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "link").symlink_to(tmp_path)
    with pytest.raises(OptionError, match=r"log_dir .* leads out of the run's folder"):
        train(tmp_path / "run", replace(CONFIG, log_dir=log_dir))
