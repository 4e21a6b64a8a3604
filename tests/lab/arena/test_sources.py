"""A row has one source: values of unlike sources meet nowhere, and an entry is labelled as it was typed."""

import importlib
import json
import sys
from dataclasses import replace
from functools import partial

import pytest

from regard import OptionError, UnknownNameError
from regard.cli import main
from regard.lab.arena import laws
from regard.lab.arena.choice import Choice
from regard.lab.arena.ledger import Ledger, trial_key
from regard.lab.arena.recommend import Case, recommend
from regard.lab.arena.report import plain, write_page
from regard.lab.arena.report.summary import LedgerSummary
from regard.lab.arena.results import LawsChecked, NotRun, Timed, Trained
from regard.lab.arena.run import run_suite
from regard.testing import LawError
from tests.lab.arena.made_up import WHERE, rows
from tests.lab.arena.test_run import LISTOPS, RACE, TINY

MINE = """
import torch
from regard.mixers import Linear

SCALE = {scale}


class Mine(Linear):
    def __init__(self, dim, *, num_heads):
        super().__init__(dim, num_heads=num_heads)
        with torch.no_grad():
            for weight in self.parameters():
                weight.mul_(SCALE)
"""
ONE_LENGTH = replace(RACE, units=("block",), passes=("forward",))


class Folder:
    """One's own modules, written and imported anew."""

    def __init__(self, path):
        self.path = path

    def write(self, name, text):
        path = self.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)

    def forget(self):
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(str(self.path)):
                del sys.modules[name]
        importlib.invalidate_caches()

    def load(self, typed):
        self.forget()
        module, _, name = typed.partition(":")
        return Choice(mixer=getattr(importlib.import_module(module), name), typed=typed)

    def mine(self, scale):
        self.write("mm.py", MINE.format(scale=scale))
        return self.load("mm:Mine")


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)  # two edits in a second, of one size
    folder = Folder(tmp_path)
    yield folder
    folder.forget()


@pytest.fixture
def ledger(tmp_path, monkeypatch):
    monkeypatch.setattr(laws, "check_mixer", lambda factory, **_: ["all"])
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        yield ledger


def run(ledger, *mixers, seeds=(0,), lengths=()):
    race = replace(ONE_LENGTH, lengths=lengths) if lengths else None
    suite = replace(TINY, mixers=mixers, contests=(LISTOPS,), seeds=seeds, race=race)
    return run_suite(suite, ledger, ledger.path.parent / "trials", progress=False)


def line(said, label):
    return next(line for line in said["mechanisms"] if line["mechanism"] == label)


def values(ledger, label="mm:Mine"):
    return line(plain(ledger.results()), label)["quality"]["listops"]["values"]


def test_values_before_an_edit_meet_none_after_it(folder, ledger, tmp_path):
    run(ledger, "softmax", folder.mine(1.0), seeds=(0, 1, 2), lengths=(16,))
    before = values(ledger)
    assert len(before) == 3 and plain(ledger.results())["old"] == {}
    run(ledger, "softmax", folder.mine(4.0), lengths=(8,))
    rows = ledger.results()
    said, summary = plain(rows), LedgerSummary(rows)
    assert len(values(ledger)) == 1, "neither a mean nor an interval of two sources"
    found = summary.overtaking("mm:Mine", "forward")
    assert (found.first, found.last) == (8, 8), "nor a curve, and so no crossing"
    assert said["old"] == {"mm:Mine": 4}
    named = "Old results left out, because the source has changed since: 4 of mm:Mine."
    assert named in said["notes"] and named in write_page(rows, tmp_path / "r.html").read_text()
    assert (
        line(said, "softmax")["quality"]["listops"]["values"]
        and len(values(ledger, "softmax")) == 3
    )
    # as it was once more: nothing is trained, and what was old is not
    assert run(ledger, "softmax", folder.mine(1.0), seeds=(0, 1, 2)).new == 1  # its laws
    assert values(ledger) == before and plain(ledger.results())["old"] == {"mm:Mine": 2}


def test_a_recommendation_is_of_the_present_source(folder, ledger):
    first = folder.mine(1.0)
    run(ledger, "softmax", first, lengths=(8, 16))
    case = Case(length=16)
    ask = partial(recommend, case, ledger.results())
    known = {candidate.mechanism: candidate for candidate in ask([first]).ranked}
    assert known["mm:Mine"].ms is not None and known["mm:Mine"].quality
    edited = ask([folder.mine(4.0)])
    (mine,) = (one for one in edited.ranked if one.mechanism == "mm:Mine")
    assert mine.ms is None and not mine.quality
    assert any("source has changed since: 3 of mm:Mine" in note for note in edited.notes)


BASE = (
    "from regard.mixers import Linear\nfrom {helper} import X\n\n\nclass Base(Linear):\n    x = X\n"
)


@pytest.mark.parametrize(
    "edited, changes", [("m", 1), ("base", 1), ("helper", 1), ("deep", 1), ("apart", 0)]
)
def test_an_edit_of_whatever_a_class_needs_changes_its_source(folder, edited, changes):
    files = {
        "m": "from base import Base\n\n\nclass Mine(Base):\n    pass\n",
        "base": BASE.format(helper="helper"),
        "helper": "X = 1\n\n\ndef late():\n    from deep import Y\n",
        "deep": "Y = 1\n",
        "apart": "import torch\n",
    }
    for name, text in files.items():
        folder.write(f"{name}.py", text)
    first = folder.load("m:Mine").source
    assert folder.load("m:Mine").source == first
    folder.write(f"{edited}.py", files[edited] + "# edited\n")
    assert (folder.load("m:Mine").source != first) == changes


@pytest.mark.parametrize("edited", ["__init__", "impl", "near"])
def test_a_class_in_a_package_is_labelled_as_typed_and_follows_its_files(folder, edited):
    files = {
        "__init__": "from .impl import Mine\n",
        "impl": BASE.format(helper=".near") + "\n\nclass Mine(Base):\n    pass\n",
        "near": "X = 1\n",
    }
    for name, text in files.items():
        folder.write(f"pkg/{name}.py", text)
    choice = folder.load("pkg:Mine")
    assert choice.name == "pkg:Mine" and Choice(mixer=choice.mixer).name == "pkg.impl:Mine"
    folder.write(f"pkg/{edited}.py", files[edited] + "# edited\n")
    assert folder.load("pkg:Mine").source != choice.source


def test_what_has_no_file_is_refused(ledger):
    scope = {"__name__": "nowhere"}
    exec("from regard.mixers import Linear\nclass Mine(Linear): pass", scope)
    with pytest.raises(OptionError, match="nowhere:Mine cannot be measured: it is in no file"):
        run(ledger, scope["Mine"])


def test_a_subclass_takes_no_row_of_its_parent(folder, ledger, monkeypatch):
    folder.write("a.py", "from regard.mixers import Linear\n\n\nclass Mine(Linear):\n    pass\n")
    folder.write("b.py", "from regard.mixers import Softmax\n\n\nclass Mine(Softmax):\n    pass\n")
    a, b = folder.load("a:Mine"), folder.load("b:Mine")

    def check(factory, **_):
        if type(factory()) is a.mixer:
            raise LawError("causality: linear: token 3 moves output 1")

    monkeypatch.setattr(laws, "check_mixer", check)
    run(ledger, "softmax", "linear", a, b, lengths=(8,))
    rows = ledger.results()
    said = plain(rows)
    assert {row["mechanism"] for row in said["mechanisms"]} == {"softmax", "linear", "b:Mine"}
    assert {(row["mixer"], row["reason"]) for row in said["not_run"]} == {
        ("a:Mine", "a:Mine breaks a law. causality: a:Mine: token 3 moves output 1")
    }
    assert not LedgerSummary(rows).is_baseline("b:Mine")
    assert {row.mixer for row in rows} == {"softmax", "linear", "a:Mine", "b:Mine"}
    found = recommend(Case(length=8), rows, [a, b])
    assert "a:Mine" in found.excluded and "linear" not in found.excluded
    folder.write("w.py", "from regard.mixers import FNet\n\n\nclass Mine(FNet):\n    pass\n")
    mine = folder.load("w:Mine")
    assert mine.refusal(mine.sketch(), "causal").startswith("w:Mine does not support causal")


@pytest.mark.parametrize("command", ["arena", "bench", "recommend --length 8"])
def test_two_entries_of_one_label_are_refused(folder, capsys, command):
    folder.mine(1.0)
    words = [*command.split(), "--mixers", "mm:Mine", "mm:Mine", "--ledger", "l.sqlite"]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "regard: mm:Mine cannot be entered twice: its results would share a label. Leave one out, or give it another name.\n"
    )


def test_options_that_look_alike_are_one_label_and_unlike_ones_are_two(ledger):
    one, two = (Choice(mixer="local", options={"window_size": size}) for size in (4, 8))
    with pytest.raises(OptionError, match=r"local \(window_size=4\) cannot be entered twice"):
        run(ledger, one, replace(one, options={"window_size": "4"}))
    run(ledger, "softmax", one)
    run(ledger, "softmax", two, lengths=(8,))
    trained = [r for r in ledger.results() if isinstance(r, Trained) and r.options != two.options]
    timed = [r for r in ledger.results() if isinstance(r, Timed)]
    labels = LedgerSummary([*trained, *timed]).mechanisms
    assert labels == ["softmax", "local (window_size=4)", "local (window_size=8)"]


def test_what_is_to_be_trained_must_be_entered(ledger, folder):
    with pytest.raises(UnknownNameError, match="unknown entry to train 'linear'"):
        run_suite(
            replace(TINY, mixers=(folder.mine(1.0),), trained=("linear",)),
            ledger,
            ledger.path.parent,
        )


def known(row, source="regard", **changes):
    return replace(row, source=source, **changes)


def test_rows_of_earlier_versions_open_and_are_never_averaged_with_new_ones(tmp_path):
    earlier = [row for row in rows(seeds=(0, 1, 2)) if row.mixer == "local"]
    path = tmp_path / "l.sqlite"
    with Ledger(path) as ledger:
        for number, row in enumerate(earlier):
            ledger.put(trial_key({"number": number}), row)
        said = plain(ledger.results())
        assert said["old"] == {} and len(line(said, "local")["quality"]["digits"]["values"]) == 3
        assert any(
            note.startswith("Of unknown source") and "local" in note for note in said["notes"]
        )
        new = next(r for r in earlier if isinstance(r, Trained) and r.task == "digits")
        ledger.put("new", known(new, value=0.5))
        said = plain(ledger.results())
    assert line(said, "local")["quality"]["digits"]["values"] == [0.5]
    assert said["old"] == {"local": 9 + 15}
    assert (
        "Old results left out, because their source was not recorded: 24 of local." in said["notes"]
    )


def test_a_merged_ledger_of_another_source_is_named_and_the_newer_counts(tmp_path):
    (run, *_) = (row for row in rows() if isinstance(row, Trained) and row.mixer == "gau")
    later = replace(WHERE, started="2027-01-01T00:00:00Z")
    for first, second in ((0, 1), (1, 0)):  # whichever is merged into the other
        given = [
            known(run, "a" * 64, mixer="mm:Mine", seed=0, value=0.1, provenance=later),
            known(run, "b" * 64, mixer="mm:Mine", seed=1, value=0.9),
        ]
        paths = [tmp_path / f"{first}-{name}.sqlite" for name in "ab"]
        for path, row in zip(paths, given, strict=True):
            with Ledger(path) as ledger:
                ledger.put(row.source, row)
        assert main(["merge", str(paths[first]), str(paths[second]), "--json"]) == 0
        with Ledger(paths[first]) as ledger:
            said = plain(ledger.results())
        assert line(said, "mm:Mine")["quality"][run.task]["values"] == [0.1]
        assert said["old"] == {"mm:Mine": 1}


def test_results_of_unlike_versions_never_meet():
    old = replace(WHERE, versions={"torch": "2.13.0", "regard": "0.0.9"}, started="2025")
    build = replace(WHERE, versions={"torch": "2.13.0+cpu", "regard": "0.1.0"})
    made = [known(row) for row in rows(seeds=(0, 1, 2))]
    mixed = [
        replace(row, provenance=old if row.seed == 1 else build)
        if isinstance(row, Trained) and row.seed
        else row
        for row in made
    ]
    said = plain(mixed)
    assert said["seeds"] == [0, 2] and sum(said["old"].values()) == 17
    assert any("they are of regard 0.0.9 with torch 2.13.0" in note for note in said["notes"])


def test_a_task_that_was_edited_is_another():
    (run, *_) = (row for row in rows() if isinstance(row, Trained))
    made = [known(run, task_source="a", seed=seed, value=0.2) for seed in (0, 1)]
    mixed = [*made, known(run, task_source="b", seed=2, value=0.9)]
    assert plain(mixed)["mechanisms"] == plain(made)["mechanisms"]
    assert any("another source of the task" in note for note in plain(mixed)["notes"])


def test_an_absence_of_an_old_source_is_none(folder, ledger):
    old = NotRun(mixer="linear", subject="listops", reason="it was refused", source="old")
    (verdict, *_) = (r for r in rows() if isinstance(r, LawsChecked) and r.mixer == "linear")
    assert plain([known(verdict), old])["not_run"] == []
    assert plain([known(verdict), replace(old, source="regard")])["not_run"] != []


FINDING = """
from regard.lab.findings import Claim, Entry, Finding, above
from regard.lab.train import Run
from regard.lab.tasks import ListOps
from regard.lab.train import TrainConfig
from regard.models import ClassifierConfig
from mm import Mine


def run(mixer):
    task = ListOps(train_size=16, valid_size=4, test_size=4, min_length=5, max_length=20)
    model = ClassifierConfig(**task.facts, max_len=task.max_len, dim=8, num_heads=2, num_layers=1, mixer=mixer)
    return Run(task=task, model=model, train=TrainConfig(steps=1, batch_size=4))


MINE = Finding(
    name="mine",
    about="?",
    entries=(Entry("mine", lambda: run(Mine)), Entry("softmax", lambda: run("softmax"))),
    claims=(Claim("It is better.", "nobody", (above("mine", "softmax"),)),),
    seeds=(0,),
)
"""


def test_a_finding_of_ones_own_mixer_is_of_its_present_source(folder, tmp_path, capsys):
    def arena(scale, *seeds):
        folder.mine(scale)
        folder.write("ff.py", FINDING)
        folder.forget()
        assert main(["arena", "ff:MINE", "--ledger", "l.sqlite", "--json", "--seeds", *seeds]) == 0
        capsys.readouterr()
        report = ["report", "--finding", "ff:MINE", "--ledger", "l.sqlite", "--folder", "out"]
        assert main([*report, "--json"]) == 0
        return json.loads(capsys.readouterr().out)["old"], (tmp_path / "out/mine.md").read_text()

    old, page = arena(1.0, "0", "1")
    assert old == {} and "Old rows" not in page
    old, page = arena(4.0, "0")
    assert old == {"mine": 2}
    assert "of another source, configuration or version: 2 of `mine`." in page
    assert "One seed, and so no interval, in this run: `mine`." in page
