"""Each law of an experiment, on a question that breaks it: refused with its number before anything is run; one that keeps all passes."""

from dataclasses import replace

import pytest

from regard import OptionError
from regard.functional.patterns import Window
from regard.lab import Claim, Entry, above, ask, near
from regard.lab.experiment import laws, provenance, run
from regard.lab.experiment.laws import ExperimentError
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.question import columns
from regard.lab.experiment.results import Results
from regard.lab.tasks import StdlibBytes
from regard.lab.train import TrainConfig
from regard.mixers import HeadGroup
from tests.command import refused as refused_line
from tests.lab.experiment.tiny import CLAIM, COLUMN, LOCAL, SCREEN, TINY, clean, few_pairs

SOFTMAX = Entry(mixer="softmax")
TRAIN = TrainConfig(steps=1, batch_size=4, eval_every=1, checkpoint_every=1)


def with_entry(*more, **changes):
    return replace(TINY, entries=(*TINY.entries, *more), **changes)


def screen(*entries):
    return replace(SCREEN, entries=entries)


def bound(*expected, smallest=0.02):
    return (Claim(text="t", source="s", smallest=smallest, expected=expected),)


NOPE = Entry(mixer="local", options={"window_size": 4}, model={"position": "none"})
ROTARY = Entry(mixer="softmax", options={"position": "rotary"})
OTHER = replace(COLUMN, name="other")
BROKEN = {
    "positions of an entry": (1, with_entry(NOPE)),
    "positions inside a mixer": (1, with_entry(Entry(mixer="local", options={"window_size": 4, "position": "rotary"}))),
    "positions that a mechanism brings": (1, with_entry(Entry(mixer="gau"), factors=("size",))),
    "positions of two that are compared": (
        1, with_entry(ROTARY, claims=bound(above("softmax", "softmax, position rotary"))),
    ),
    "another norm": (1, with_entry(replace(LOCAL, model={"norm": "rms"}))),
    "no search of the shell": (1, replace(TINY, shells=TINY.shells[:1])),
    "one shell twice": (1, replace(TINY, shells=TINY.shells[:1] * 2)),
    "no baseline": (1, replace(TINY, entries=(LOCAL,), claims=())),
    "5 % more parameters": (2, with_entry(Entry(mixer="linear", model={"hidden_dim": 71}))),
    "parameters that no width gives": (2, with_entry(Entry(mixer="gau", options={"relative_bias": None}))),
    "one is trained before": (2, with_entry(Entry(mixer="linear", before=COLUMN))),
    "no rates": (3, replace(TINY, rates=())),
    "a window of half the length": (5, with_entry(Entry(mixer="local", options={"window_size": TINY.vary[0].task.max_len // 2}))),
    "a default of half the length": (5, screen(Entry(mixer="linformer"))),
    "a window in a pattern": (5, screen(Entry(mixer="head_mix", options={"patterns": (Window(30, 30),) * 2}))),
    "a window in a group of heads": (
        5, screen(Entry(mixer="head_groups", options={"groups": (HeadGroup("local", 2, {"window_size": 30}),)})),
    ),
    "a claim on one seed": (6, replace(TINY, seeds=(0,))),
    "no claim": (7, replace(TINY, claims=())),
    "a claim without a smallest effect": (7, replace(TINY, claims=(replace(CLAIM, smallest=0.0),))),
    "a bound that bounds nothing": (7, replace(TINY, claims=bound(replace(above("softmax", "local, window 4"), least=float("-inf"))))),
    "a screen with claims": (7, replace(TINY, kind="screen", shells=())),
    "nothing on what is small": (8, replace(TINY, limits=())),
    "a window in a screen": (5, screen(Entry(mixer="local"))),
}  # fmt: skip


LAWLESS = BROKEN["no rates"][1]


def refused(question, tmp_path, law):
    with clean(), Ledger(tmp_path / "l.sqlite") as ledger:
        with pytest.raises(ExperimentError, match=f"breaks law {law} of an experiment") as error:
            ask(question, ledger, tmp_path)
        assert error.value.law == law and ledger.rows() == []


@pytest.mark.parametrize("how", BROKEN)
def test_a_question_that_breaks_a_law_is_refused_before_anything_is_run(how, tmp_path):
    law, question = BROKEN[how]
    refused(question, tmp_path, law)


def test_a_column_in_which_no_line_can_stand_is_refused(tmp_path):
    sizes = {"train_size": 64, "valid_size": 8, "test_size": 8}
    whole = type("Whole", (type(COLUMN.task),), {"has_scores": False})(**sizes)
    refused(replace(TINY, vary=(replace(COLUMN, task=whole),), claims=()), tmp_path, 6)
    unknown = type("Strange", (type(COLUMN.task),), {})(**sizes)
    object.__setattr__(unknown, "kind", "strange")
    refused(replace(SCREEN, vary=(replace(COLUMN, task=unknown),)), tmp_path, 4)


def test_columns_without_lines_are_named(tmp_path):
    every = "chance, a model without mixing and the bag in every column"
    places = replace(SCREEN, vary=columns(few_pairs(tmp_path), TRAIN))
    told, usual = (laws.check(one, lambda task: task.load())[4] for one in (places, SCREEN))
    assert told.startswith(f"{every} but text_files") and usual.startswith(f"{every};")
    assert told.count(", cross") == 1 and "encoder" not in told


def test_a_changed_tree_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "commit", lambda *_: "0123456789ab+changes")
    with pytest.raises(ExperimentError, match=r"law 9 .*Commit them first"):
        ask(TINY, tmp_path / "l.sqlite", tmp_path)
    assert ask(SCREEN, tmp_path / "l.sqlite", tmp_path, hours=1e-9)[0].kind == "asked"


def test_two_entries_of_one_label_are_refused():
    with pytest.raises(OptionError, match=r"entered twice \(law 10 of an experiment\)"):
        with_entry(LOCAL)


def test_what_is_declared_or_crossed_passes():
    both = (ROTARY, Entry(mixer="local", options={"window_size": 4, "position": "rotary"}))
    one = bound(above("softmax", "softmax, position rotary"))
    for question in (with_entry(*both), with_entry(ROTARY, factors=("position",), claims=one)):
        with clean():
            laws.check(question, lambda task: task.load())


def test_the_command_line_says_the_law_and_ends_with_2(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("subprocess.Popen", lambda *_, **__: pytest.fail("another was started"))
    with clean():
        said = refused_line(capsys, f"arena {__name__}:LAWLESS --json --workers 2")
    assert "law 3 of an experiment" in said


def test_a_comparison_that_keeps_all_laws_is_run_and_judged(tmp_path):
    with clean(), Ledger(tmp_path / "l.sqlite") as ledger:
        outcome = run.Outcome(question="tiny")
        rows = ask(TINY, ledger, tmp_path, outcome=outcome)
        assert [row for row in rows if row.kind == "asked"] == ledger.asked("tiny")
        found = Results(rows[0], rows)
        assert set(found.config["laws"]) == {str(law) for law in range(1, 11)}
        assert outcome.new == len(ledger.rows()) - len(ledger.asked("tiny")) and outcome.left == 0
        for (label, _), cell in found.cells.items():
            rates = sorted({row.rate for row in cell.tried})
            assert len(cell.rows) + len(cell.failed) == 8, label
            assert not cell.at_edge or len(rates) == len(TINY.rates) + run.WIDEST
            for rate in rates:
                assert len({row.seed for row in cell.tried if row.rate == rate}) >= 2
            for row in cell.rows:
                assert sum(row.scores) / len(row.scores) == pytest.approx(row.value, abs=1e-4)
        sizes = [row.parameters for row in rows if row.kind == "trained"]
        assert max(sizes) <= 1.02 * min(sizes)
        (judged,) = found.judged()
        assert judged["verdict"] in ("agrees", "disagrees", "cannot tell")
        again = run.Outcome(question="tiny")
        ask(TINY, ledger, tmp_path, outcome=again)
        assert again.new == 0 and len(ledger.asked("tiny")) <= 2


class Percent(type(COLUMN.task)):
    def score(self, model, batches):
        return 100 * super().score(model, batches)


class Hidden(type(COLUMN.task)):
    def collate(self, items):
        return super().collate(items) | {"tokens": items[0]["tokens"].expand(len(items), -1)}


class Perplexity(type(COLUMN.task)):
    def measure(self, *columns):
        return 2 ** super().measure(*columns)


def test_bounds_that_nothing_meets_or_nothing_measures_are_refused():
    with pytest.raises(OptionError, match=r"from 0\.1 to -0\.1 is met by nothing"):
        near("softmax", "local, window 4", within=-0.1)
    with pytest.raises(OptionError, match="a bound is on 'rank', and it has no `measures`"):
        replace(TINY, claims=bound(above("softmax", "local, window 4", measure="rank")))
    with pytest.raises(OptionError, match="has a metric of its own: give the column a TrainConfig"):
        replace(TINY.trained[0], task=StdlibBytes(length=8))
    with pytest.raises(
        OptionError, match="has a collate of its own: give the column a TrainConfig"
    ):
        replace(TINY.trained[0], task=Hidden())
    for task in (Percent(), Perplexity()):
        with pytest.raises(OptionError, match="and its items' are of another metric"):
            replace(TINY.trained[0], task=task, train=TrainConfig(steps=2))
