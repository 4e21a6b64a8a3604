"""Asking a question: what is missing is done once, what cannot be is said, and rows go on elsewhere; `tests.faults` kills its workers."""

import math
import re
from collections import Counter
from dataclasses import fields, replace
from functools import partial
from statistics import fmean
from unittest import mock

import pytest
import torch

import regard.lab.experiment.run as engine
from regard import MIXERS, OptionError, UnknownNameError
from regard.core import PathError
from regard.lab import Column, Entry, Setting, Shell, ask
from regard.lab.experiment import mechanism_laws, plan, speed, trial
from regard.lab.experiment.display import Display, displayed
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.results import Results
from regard.lab.experiment.run import Outcome
from regard.lab.report import told
from regard.lab.tasks import ListOps, OwnText, StdlibBytes
from regard.lab.tasks.task import Task
from regard.lab.train import TrainConfig
from regard.models import ClassifierConfig
from regard.testing import LawError
from tests.lab.experiment.tiny import CLAIM, COLUMN, SCREEN, TINY, clean, few_modules, made_up

TRAIN = TrainConfig(steps=2, batch_size=4, eval_every=1, checkpoint_every=1, log_dir=None)
SHELL = Shell(dim=16, num_heads=2, num_layers=1)
SIZES = {"train_size": 16, "valid_size": 4, "test_size": 4}
EXPRESSIONS = ListOps(min_length=5, max_length=20, **SIZES)
LISTOPS = Column(name="listops", task=EXPRESSIONS, train=TRAIN, shell=SHELL)
SPEED = tuple(Setting(kind=kind, length=8, dim=16, num_heads=2, seconds=0.01, unit="block") for kind in ("forward", "decode"))  # fmt: skip
SOFTMAX, LINEAR = Entry(mixer="softmax"), Entry(mixer="linear")
QUICK = replace(SCREEN, entries=(SOFTMAX, LINEAR), rates=(1e-2,), seeds=(0, 1))
EVERYONE = {"softmax", "linear", "no mixing", "the bag"}


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        yield ledger


def run(question, ledger, **how):
    outcome = Outcome(question=question.name)
    with clean():
        ask(question, ledger, ledger.path.parent / "trials", outcome=outcome, **how)
    return outcome


def nothing(fitted):
    return {}


def not_of_linear(fitted):
    return {"x": math.nan if fitted.entry.name == "linear" else 1.0}


def weight(fitted):
    return {"weight": sum(float(p.double().sum()) for p in fitted.model.parameters())}


def of(ledger, kind="trained"):
    return [row for row in ledger.rows() if row.kind == kind]


def test_a_screen_fills_the_ledger_once(ledger, monkeypatch):
    few_modules(monkeypatch)
    text = Column(name="bytes", task=StdlibBytes(length=16, valid_size=2, test_size=2), train=TRAIN, shell=SHELL)  # fmt: skip
    mixers = (SOFTMAX, LINEAR, Entry(mixer="fnet"))
    question = replace(QUICK, entries=mixers, vary=(*SPEED, COLUMN, text), seeds=(0,), rates=())
    outcome = run(question, ledger)
    every = {("address", name) for name in {*EVERYONE, "fnet"}}
    every |= {("bytes", name) for name in EVERYONE}
    assert {(row.column, row.entry) for row in of(ledger)} == every
    timed = {(row.entry, row.column): row for row in of(ledger, "timed")}
    assert len(timed) == 5 and ("fnet", "decode 8") not in timed
    for (entry, column), row in timed.items():
        found = row.values
        assert found["baseline_ms"] == timed["softmax", column].values["ms"] and row.flops > 0
        assert found["low_ms"] <= found["ms"] <= found["high_ms"] and found["peak_bytes"] > 0
        assert row.parameters == pytest.approx(found["baseline_parameters"], rel=0.1)
        assert ("state_bytes" in found) == (entry != "fnet")
    said = told(ledger.rows())["questions"][0]
    (fnet,) = [row for row in said["rows"] if row["entry"] == "fnet"]
    refusals = MIXERS["fnet"].capabilities.refusals()
    assert fnet["cells"]["bytes"]["reason"] == f"fnet does not support causal: {refusals['causal']}"
    assert outcome.new == 14 and not of(ledger, "laws") and outcome.left == 0
    lines = [row.entry for row in ledger.rows() if row.column == "address"][:2]
    assert lines == ["no mixing", "the bag"], "first, for without them nothing is coloured"
    for module, name in ((trial, "run"), (speed, "measure")):
        monkeypatch.setattr(module, name, lambda *_, **__: pytest.fail("nothing was to be done"))
    before, again = ledger.rows(), run(question, ledger)
    assert (again.new, again.found) == (0, 9 + 5) and ledger.rows() == before


def test_scores_of_items_are_of_the_precision_that_trains(ledger, monkeypatch):
    few_modules(monkeypatch)
    task = StdlibBytes(length=16, valid_size=2, test_size=2)
    column = replace(LISTOPS, task=task, train=replace(TRAIN, precision="bf16"))
    run(replace(QUICK, entries=(SOFTMAX,), vary=(column,), seeds=(0,)), ledger)
    for row in of(ledger):
        assert fmean(row.scores) == pytest.approx(row.value, abs=1e-9)


def test_rates_are_tried_from_one_seed_and_the_best_serves_the_others(ledger, monkeypatch):
    calls, real = [], Task.trivial_baseline
    monkeypatch.setattr(Task, "trivial_baseline", lambda *of: (calls.append(of), real(*of))[1])
    task = replace(COLUMN.task, train_size=72)  # that no other test has asked about
    tried = {"rates": (1e-3, 1e-2, 1e-1), "seeds": (3, 4)}
    run(replace(QUICK, vary=(replace(COLUMN, task=task),), **tried), ledger)
    rows = of(ledger)
    assert [row.rate for row in rows[:12]] == [rate for rate in (1e-3, 1e-2, 1e-1) for _ in range(4)]  # fmt: skip
    for label in ("softmax", "linear", "the bag"):
        mine = [row for row in rows if row.entry == label]
        best = max((row for row in mine if row.seed == 3), key=lambda row: row.valid_value)
        assert [row.rate for row in mine if row.seed == 4] == [best.rate]
    assert len({row.chance for row in rows}) == len(calls) == 1, "the baseline is computed once"


def test_only_what_is_missing_is_done_and_whatever_determines_a_result_is_in_its_key(ledger):
    one = replace(QUICK, entries=QUICK.entries[:1], seeds=(0,))
    options = Entry(mixer="softmax", options={"num_kv_heads": 1})
    for question, new in (
        (one, 3),
        (replace(one, entries=QUICK.entries), 1),
        (replace(one, name="other"), 0),  # a row is of its cell, not its question
        (replace(one, vary=(replace(COLUMN, train=replace(COLUMN.train, steps=3)),)), 3),
        (replace(one, vary=(replace(COLUMN, shell=replace(SHELL, dim=8)),)), 3),
        (replace(one, vary=(replace(COLUMN, task=replace(COLUMN.task, seed=1)),)), 3),
        (replace(one, rates=(1e-3,)), 3),
        (replace(one, entries=(options,)), 1),
        (replace(one, measures=nothing), 3),
    ):
        assert run(question, ledger).new == new


def test_causal_forms_load_their_data_once(ledger, monkeypatch):
    loads, real = Counter(), type(COLUMN.task).load
    monkeypatch.setattr(type(COLUMN.task), "load", lambda task: (loads.update([task.causal]), real(task))[1])  # fmt: skip
    entries = (SOFTMAX, Entry(mixer="rfa", options={"gate": True}))
    run(replace(QUICK, entries=entries, vary=(replace(COLUMN, either=True),), seeds=(0,)), ledger)
    assert loads == {False: 1, True: 1}
    labels = {(row.entry, row.causal) for row in of(ledger)}
    assert ("rfa, gate", True) in labels and {("the bag", True), ("the bag", False)} <= labels


class Mine(MIXERS["linear"]):
    """One's own, as the catalogue's."""


def test_a_mixer_of_ones_own_that_breaks_a_law_is_not_measured(ledger, monkeypatch):
    def check(factory, laws):
        assert isinstance(factory(), Mine) and laws == "all"
        raise LawError("causality: linear: token 3 moves output 1")

    monkeypatch.setattr(mechanism_laws, "check_mixer", check)
    question = replace(QUICK, entries=(SOFTMAX, Entry(mixer=Mine)), vary=(SPEED[0], COLUMN))
    run(question, ledger)
    label = Entry(mixer=Mine).label
    assert {row.entry for row in [*of(ledger), *of(ledger, "timed")]} == EVERYONE - {"linear"}
    (row,) = [r for r in told(ledger.rows())["questions"][0]["rows"] if r["entry"] == label]
    assert row["breaks"] == f"causality: {label}: token 3 moves output 1"
    assert run(question, ledger).new == 0, "and its laws are not run again"


def test_a_verdict_is_of_the_options_that_a_question_names(ledger, monkeypatch):
    def check(factory, laws):
        if factory().options["feature_map"] == "softplus":
            raise LawError("causality: linear: token 3 moves output 1")

    monkeypatch.setattr(mechanism_laws, "check_mixer", check)
    for name in ("elu_plus_one", "softplus"):
        mine = Entry(mixer=Mine, options={"feature_map": name}, title="mine")
        run(replace(QUICK, name=name, entries=(SOFTMAX, mine), vary=SPEED[:1]), ledger)
    found = {one["name"]: one["rows"][-1]["breaks"] for one in told(ledger.rows())["questions"]}
    assert found["elu_plus_one"] is None and "causality" in found["softplus"]


class Alike(type(COLUMN.task)):
    __qualname__ = type(COLUMN.task).__qualname__


def test_tasks_of_one_name_keep_their_own_data():
    known, task = plan.Plan(QUICK), COLUMN.task
    given = {field.name: getattr(task, field.name) for field in fields(task) if field.init}
    other = Alike(**given)
    assert repr(task) == repr(other) and known.load(task) is not known.load(other)
    assert known.load(replace(task)) is known.load(task)


def mapped(function):
    return Entry(mixer="linear", options={"feature_map": function})


def test_what_is_wrong_is_found_before_any_compute(ledger, monkeypatch):
    wrong = Entry(mixer="softmax", options={"window_size": 2})
    elsewhere = replace(CLAIM, expected=(replace(CLAIM.expected[0], column="x"),))
    monkeypatch.setattr(trial, "run", lambda *_, **__: pytest.fail("trained first"))
    monkeypatch.setattr(plan, "LONGEST_LIST", 19)
    for error, said, question in (
        (UnknownNameError, "Did you mean 'linear'", lambda: replace(QUICK, entries=(Entry(mixer="liner"),))),
        (UnknownNameError, "window_size", lambda: replace(QUICK, entries=(wrong,))),
        (UnknownNameError, "unknown trained column of tiny", lambda: replace(TINY, claims=(elsewhere,))),
        (OptionError, "has a rate twice", lambda: replace(QUICK, rates=(1e-3, 1e-3))),
        (OptionError, "has a seed twice", lambda: replace(QUICK, seeds=(0, 0))),
        (OptionError, "searched in a comparison alone", lambda: replace(QUICK, shells=TINY.shells)),
        (OptionError, "hours", lambda: replace(QUICK, hours=0)),
        (OptionError, "measures .* name of its own", lambda: replace(QUICK, measures=lambda fitted: {})),
        (OptionError, "measures .* name of its own", lambda: replace(QUICK, measures=CLAIM.__eq__)),
        (OptionError, "measures .* name of its own", lambda: replace(QUICK, measures=partial(nothing, torch))),
        (OptionError, "a name of its own", lambda: Entry(mixer=type("<locals>", (Mine,), {}))),
        (OptionError, "a name of its own", lambda: mapped(lambda x: x)),
        (OptionError, "a name of its own", lambda: mapped(partial(mapped, lambda x: x))),
        (OptionError, "a name of its own", lambda: mapped(torch.nn.Identity())),
        (OptionError, "on meta, which computes nothing", lambda: Setting(kind="forward", length=8, device="meta")),
        (OptionError, "must be a function", lambda: Entry(make=torch.nn.Identity(), title="x")),
        (OptionError, "entry 'x': what make gives .* must be a ModelConfig", lambda: Entry(make=lambda _: torch.nn.Identity(), title="x").made(None)),
        (OptionError, "has 20 test items, and a result holds the scores of at most 19", lambda: QUICK),
    ):  # fmt: skip
        with pytest.raises(error, match=said):
            run(question(), ledger)
    for said, more in (
        ("question screen is a screen", {"until_told": True}),
        ("gpus are", {"gpus": 2.0}),
    ):
        with pytest.raises(OptionError, match=said):
            run(QUICK, ledger, **more)
    assert ledger.rows() == []


def make_up_trials(ledger, monkeypatch, levels):
    """In the place of training, values of each label's level and deviation, and a best rate inside; gives how often each was begun."""
    noise, begun = torch.Generator().manual_seed(0), Counter()

    def made(splits, *, cell, seed, rate, base, question, **_):
        begun[cell.entry.label, seed] += 1
        level, deviation = levels.get(cell.entry.label, (0.1, 0.0))
        value = min(1.0, level + deviation * float(torch.randn((), generator=noise)))
        (row, *_) = made_up(ledger.asked(question)[-1], cell.entry.label, (value,), items=200)
        valid = 1 - abs(math.log10(rate) + 2.1)
        return replace(row, seed=seed, rate=rate, valid_value=valid, cell=cell.id, data=splits.sha256)  # fmt: skip

    monkeypatch.setattr(trial, "run", made)
    return begun


def test_a_question_of_which_nothing_can_be_run_is_refused(ledger):
    wrong = replace(COLUMN, shell=replace(COLUMN.shell, fields={"feed_foward": "gelu"}))
    with pytest.raises(OptionError, match=r"nothing of it can be run\. .*feed_foward"):
        run(replace(QUICK, vary=(wrong,)), ledger)


def test_what_cannot_take_the_best_shell_is_said_and_the_rest_goes_on(ledger, monkeypatch):
    """Rotary positions serve softmax and windows; FNet takes none, and the lines keep added ones."""
    rotary = replace(COLUMN.shell, position="rotary")
    question = replace(TINY, entries=(*TINY.entries, Entry(mixer="fnet")), shells=(rotary, replace(rotary, num_heads=4)))  # fmt: skip
    make_up_trials(ledger, monkeypatch, {})
    run(question, ledger)
    found = Results(ledger.asked("tiny")[-1], ledger.rows())
    assert found.columns["address"]["shell"]["position"] == "rotary"
    assert found.cells["fnet", "address"].reason.startswith("fnet does not support rotary")
    for label in ("softmax", "local, window 4", "no mixing", "the bag"):
        assert len(found.cells[label, "address"].tried) >= 8


def test_a_result_that_is_no_number_is_a_run_that_failed(ledger):
    question = replace(QUICK, vary=(LISTOPS,), measures=not_of_linear, seeds=(0,))  # fmt: skip
    run(question, ledger)
    reasons = {row.entry: row.reason for row in of(ledger)}
    assert reasons["softmax"] is None and "nan" in reasons["linear"]
    assert next(row for row in of(ledger) if row.entry == "softmax").values == {"x": 1.0}


def tall(column):
    return ClassifierConfig(**column.task.facts, max_len=column.task.max_len, dim=8, num_heads=2, num_layers=2)  # fmt: skip


def test_ray_is_asked_for_before_anything_is_timed(ledger, monkeypatch):
    monkeypatch.setattr("regard.lab.find_spec", lambda name: None)
    with pytest.raises(ModuleNotFoundError, match="needs ray"):
        ask(QUICK, ledger, ledger.path.parent, on_ray=True)
    assert not ledger.rows()


def test_a_fault_of_the_disk_is_no_result(ledger, monkeypatch):
    full = mock.Mock(side_effect=PathError("the disk is full"))
    monkeypatch.setattr(trial, "_fitted", full)
    with pytest.raises(PathError, match="full"):
        run(QUICK, ledger)
    assert not of(ledger)


def test_files_of_one_name_and_size_share_no_cell(tmp_path):
    cells = []
    for place, letter in (("a", "x"), ("b", "y"), ("c", "x")):
        path = tmp_path / place / "text.txt"
        path.parent.mkdir()
        path.write_text("".join(f"{letter} {n} " for n in range(900)))
        task = OwnText(path=path, length=16, valid_size=2, test_size=2)
        column = Column(name="text", task=task, train=TRAIN, shell=SHELL)
        cells.append(trial.content(column, SOFTMAX, task.load(), None, None))
    assert cells[0] == cells[2] != cells[1]


def test_whole_models_and_what_is_trained_before(ledger):
    before = replace(LISTOPS, train=replace(TRAIN, steps=4))
    fresh = Entry(mixer="softmax", title="fresh")
    begun = replace(fresh, title="begun", before=before)

    entries = (fresh, begun, Entry(make=tall, title="tall"))
    question = replace(QUICK, entries=entries, vary=(LISTOPS,), measures=weight)
    assert run(question, ledger).new == 2 * 5
    rows = {(row.entry, row.seed): row for row in of(ledger)}
    assert len({row.values["weight"] for row in rows.values()}) == 10
    assert rows["fresh", 0].parameters == rows["begun", 0].parameters != rows["tall", 0].parameters
    for row in rows.values():
        assert row.reason is None and sum(row.scores) / len(row.scores) == pytest.approx(row.value)
    assert run(question, ledger).new == 0
    short = replace(question, vary=(COLUMN,), entries=(fresh, replace(begun, before=COLUMN)))
    assert run(short, ledger).new == 2 * 4
    weights = {row.values["weight"] for row in of(ledger) if row.column == "address"}
    assert len(weights) == 8, "in a short run too"
    longer = replace(begun, before=replace(before, train=replace(TRAIN, steps=5)))
    assert run(replace(question, entries=(fresh, longer)), ledger).new == 2


NOISY = {"softmax": (0.8, 0.09), "local, window 4": (0.7, 0.09)}
"""The window is worse by 0.1 with noise that eight seeds leave open."""


@pytest.mark.parametrize(("levels", "told_at_last"), [(NOISY, True), ({}, False)], ids=["noise", "grey"])  # fmt: skip
def test_seeds_are_added_until_a_claim_is_told_where_they_can_tell(ledger, monkeypatch, levels, told_at_last):  # fmt: skip
    begun = make_up_trials(ledger, monkeypatch, levels)

    def judged():
        (one,) = Results(ledger.asked("tiny")[-1], ledger.rows()).judged()
        return one["verdict"], one["seeds"], one["bounds"][0]["interval"]["seeds"]

    run(TINY, ledger)
    word, needed, seeds = judged()
    assert (word, seeds) == ("cannot tell", 8) and (needed or 0) > 8 * told_at_last - 1
    run(TINY, ledger, until_told=True)
    word, _, seeds = judged()
    assert (word, seeds > 8) == (("agrees", True) if told_at_last else ("cannot tell", False))
    count = sum(begun.values())
    run(TINY, ledger, until_told=True)
    assert sum(begun.values()) == count


def test_rows_go_on_elsewhere(ledger, tmp_path):
    run(replace(QUICK, seeds=(0,)), ledger)
    file = tmp_path / "rows.jsonl"
    assert ledger.write_rows(file, "screen") == 4 + 1
    with Ledger(tmp_path / "elsewhere" / "l.sqlite") as other:
        assert other.read_rows(file) == 5
        outcome = run(QUICK, other)
        assert (outcome.found, outcome.new) == (4, 4)
        other.write_rows(file, "screen")
        assert ledger.read_rows(file) == 4 + 1 and run(QUICK, ledger).new == 0
        assert told(ledger.rows()) == told(other.rows())
        again = file.read_bytes()
        ledger.write_rows(file, "screen")
        assert sorted(file.read_bytes().splitlines()) == sorted(again.splitlines())
        assert ledger.write_rows(file, "another") == len(again.splitlines())  # none is lost
        with Ledger(tmp_path / "beside.sqlite") as beside:  # which has not read the file
            assert beside.write_rows(file, "screen") == len(again.splitlines())


def test_what_another_process_has_made_since_is_new(ledger, monkeypatch):
    assert run(QUICK, ledger).new == 8
    assert run(QUICK, ledger).found == 8
    monkeypatch.setattr(engine, "clock", lambda: "2000")
    later = run(QUICK, ledger)
    assert (later.found, later.new) == (0, 8)


def test_a_search_that_was_stopped_while_rates_were_widened_goes_on(ledger, monkeypatch):
    question, best = replace(TINY, rates=(1e-4, 1e-3)), set()
    make_up_trials(ledger, monkeypatch, {})
    for widest in (1, 6):
        monkeypatch.setattr(engine, "WIDEST", widest)
        before = len(of(ledger))
        outcome = run(question, ledger)
        assert outcome.found <= before and outcome.new == len(of(ledger)) - before
        best |= {row.rate for row in of(ledger) if row.entry == "softmax"}
    assert max(best) == pytest.approx(1e-1)  # beyond the best, which is near 0.008
    assert run(question, ledger).new == 0


def test_what_another_question_tried_leaves_the_figures_of_one_as_they_are(ledger, monkeypatch):
    mine, figures = replace(QUICK, rates=(1e-2,)), []
    others = replace(mine, name="rates", rates=(8e-3,)), replace(mine, name="seeds", seeds=(1, 2))
    make_up_trials(ledger, monkeypatch, {})
    for question in (mine, *others):
        run(question, ledger)
        (found,) = [one for one in told(ledger.rows())["questions"] if one["name"] == mine.name]
        figures.append(found["rows"])
    assert figures[0] == figures[1] == figures[2]


def test_the_bar_knows_the_whole_and_counts_what_is_found_and_done(ledger, monkeypatch):
    for module in ("run", "results"):
        monkeypatch.setattr(f"regard.lab.experiment.{module}.WIDEST", 0)
    make_up_trials(ledger, monkeypatch, {})
    timed = replace(QUICK, vary=(*SPEED, COLUMN), rates=(1e-2, 1e-1))
    for question, count in ((timed, 14), (timed, 14), (TINY, 44)):
        bars = mock.Mock()
        display = Display(bars, None)
        with clean():
            asking = engine.Asking(question, ledger, ledger.path.parent, display, Outcome(question="screen"), False, None, lambda: None)  # fmt: skip
            asking.all(False, lambda: None)
        totals = {call.kwargs.get("total") for call in bars.update.call_args_list}
        assert totals - {None} == {count} == {bars.advance.call_count, display.total}
        names = [name for name, *_ in bars.method_calls]
        for place, (name, _, how) in enumerate(bars.method_calls):
            assert name != "reset" or how["completed"] == names[:place].count("advance")


def test_the_bar_is_whole_in_80_columns(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    with displayed(True) as display:
        display.plan(300, 3600.0)
        display.doing("counting: synthesizer_factorized_random, rank 8, seed 0, rate 0.01")
    line = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"^counting: .*… .* 0/300 0:00:00 left .*until \d\d:\d\d$", line)
