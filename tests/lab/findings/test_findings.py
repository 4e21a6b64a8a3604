"""Findings: entries of any kind into one ledger, verdicts from intervals, and a page drawn again from its JSON."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from regard import OptionError, UnknownNameError
from regard.cli import main
from regard.core import StoredDataError
from regard.lab.arena.ledger import Ledger
from regard.lab.arena.results import Tried
from regard.lab.findings import (
    Claim,
    Entry,
    Finding,
    above,
    below,
    near,
    reaches,
    run as running,
    run_finding,
    stays_below,
)
from regard.lab.findings.intervals import bounds, difference, interval, together, verdict
from regard.lab.findings.page import pages, read, stored, summary, write
from regard.lab.findings.results import Results
from regard.lab.tasks import ListOps
from regard.lab.train import Run, TrainConfig
from regard.models import ClassifierConfig
from tests.lab.arena.made_up import WHERE

PAGES = Path(__file__).parents[3] / "docs" / "findings"


def toy(**options) -> Run:
    task = ListOps(train_size=16, valid_size=4, test_size=4, min_length=5, max_length=20)
    model = ClassifierConfig(
        **task.facts, max_len=task.max_len, dim=8, num_heads=2, num_layers=1, **options
    )
    train = TrainConfig(steps=2, batch_size=4, eval_every=2, keep=1, log_dir=None)
    return Run(task=task, model=model, train=train)


TOY = Finding(
    name="toy",
    about="Which of two?",
    entries=(
        Entry("first", toy),
        Entry("second", lambda: toy(norm="scale")),
        Entry("times", values=lambda seed: {"ms": 2.0 + 0.001 * seed}, part="speed"),
        Entry("longer", values=lambda seed: {"ms": 4.0 + 0.001 * seed}, part="speed"),
    ),
    claims=(
        Claim("Half the time.", "nobody", (below("speed: times", "speed: longer", measure="ms", by=1.5, ratio=True),)),
        Claim("Twice the time.", "nobody", (above("speed: times", "speed: longer", measure="ms", by=1.5, ratio=True),)),
    ),
    seeds=(0, 1),
    measures=lambda fitted: {"steps a token": fitted.result.steps / fitted.result.tokens},
    limits=("It is a toy.",),
)  # fmt: skip


TOY_TWO = replace(TOY, entries=TOY.entries[:2], claims=())


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        yield ledger


def test_a_finding_fills_the_ledger_once(ledger, tmp_path, monkeypatch):
    tally = run_finding(TOY, ledger, tmp_path, progress=False, command="regard arena toy")
    rows = ledger.findings()
    assert (tally.new, tally.found, tally.left) == (8, 0, 0) and len(rows) == 8
    assert {(row.entry, row.seed) for row in rows} == {
        (entry.name, seed) for entry in TOY.entries for seed in (0, 1)
    }
    trained = [row for row in rows if row.steps]
    assert all(0 <= row.value <= 1 and row.values["steps a token"] > 0 for row in trained)
    assert {row.config["train"]["seed"] for row in trained} == {0, 1}
    assert ledger.results() == []  # the arena's page does not draw them

    def never(*args, **kwargs):
        raise AssertionError("nothing was to be trained")

    monkeypatch.setattr(running, "train", never)
    again = run_finding(TOY, ledger, tmp_path, progress=False)
    assert (again.new, again.found) == (0, 8) and ledger.findings() == rows


def test_rates_are_searched_once_and_the_best_serves_the_other_seeds(ledger, tmp_path):
    searched = replace(TOY, entries=TOY.entries[:2], claims=(), rates=(1e-5, 1e-2))
    tally = run_finding(searched, ledger, tmp_path, progress=False)
    tried = [(row.entry, row.seed, row.rate) for row in tally.rows]
    best = running.best_rates(tally.rows)
    assert len(tried) == 6 and set(tried) == {
        *((name, 0, rate) for name in best for rate in (1e-5, 1e-2)),
        *((name, 1, best[name]) for name in best),
    }
    for name in best:
        searches = [row for row in tally.rows if row.entry == name and row.seed == 0]
        top = max(row.valid_value for row in searches)
        assert next(row for row in searches if row.rate == best[name]).valid_value == top


def test_what_is_refused_is_said_and_the_rest_goes_on(ledger, tmp_path):
    broken = Entry("broken", lambda: toy(mixer="linformer", mixer_options={"num_slots": 0}))
    finding = replace(TOY, entries=(broken, TOY.entries[0]), claims=(), seeds=(0,))
    tally = run_finding(finding, ledger, tmp_path, progress=False)
    reasons = {row.entry: row.reason for row in tally.rows}
    assert "num_slots" in reasons["broken"] and reasons["first"] is None
    page = write(finding, ledger.findings(), tmp_path / "pages").read_text()
    assert "| broken | - | - | not run |" in page and "num_slots" in page


KILLED = """
import sys
from regard.lab.arena.ledger import Ledger
from regard.lab.findings import run
from tests.lab.findings.test_findings import TOY_TWO
real = run.train
def train(*arguments, **options):
    if len(ledger.findings()) == 3:
        print("three", flush=True)
        sys.stdin.read()
    return real(*arguments, **options)
run.train = train
with Ledger(sys.argv[1]) as ledger:
    run.run_finding(TOY_TWO, ledger, sys.argv[2], progress=False)
"""


def test_a_kill_loses_nothing(tmp_path):
    path, root = tmp_path / "ledger.sqlite", Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            KILLED,
            path,
            tmp_path,
        ],
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as worker:
        assert worker.stdout is not None and worker.stdout.readline() == b"three\n"
        os.kill(worker.pid, signal.SIGKILL)
    with Ledger(path) as ledger:
        before = ledger.findings()
        tally = run_finding(TOY_TWO, ledger, tmp_path, progress=False)
        assert len(before) == 3 and (tally.found, tally.new) == (3, 1)
        assert ledger.findings()[:3] == before


def test_intervals_are_students():
    found = interval([1.0, 2.0, 3.0])
    assert found.mean == 2 and found.half == pytest.approx(4.302653 / math.sqrt(3))  # t, 2 degrees
    assert interval([]) is None and interval([5.0]).half == math.inf
    paired = difference(above("a", "b"), {0: 1.0, 1: 2.0, 2: 9.0}, {0: 0.5, 1: 1.5, 3: 0.0})
    assert paired == (0.5, 0.0, 2)  # only the seeds that both have
    factor = difference(below("a", "b", ratio=True), {0: 1.0, 1: 10.0}, {0: 2.0, 1: 20.0})
    assert math.exp(factor.mean) == pytest.approx(0.5)


@pytest.mark.parametrize(
    ("expected", "values", "word"),
    [
        (above("a", "b"), (0.1, 0.11, 0.12), "agrees"),
        (above("a", "b"), (-0.1, -0.11, -0.12), "disagrees"),
        (above("a", "b"), (-0.1, 0.0, 0.12), "cannot tell"),
        (above("a", "b"), (0.5,), "cannot tell"),  # one seed has no interval
        (above("a", "b"), (0.0, 0.0, 0.0), "cannot tell"),  # both at the ceiling
        (above("a", "b", by=0.2), (0.1, 0.11, 0.12), "disagrees"),
        (above("a", "b", by=-0.05), (-0.01, 0.0, 0.01), "agrees"),
        (near("a", "b", within=0.05), (-0.01, 0.0, 0.01), "agrees"),
        (near("a", "b", within=0.05), (0.1, 0.11, 0.12), "disagrees"),
        (below("a", "b"), (-0.1, -0.11, -0.12), "agrees"),
        (below("a", "b", by=0.1), (-0.2, -0.21, -0.22), "agrees"),
    ],
)
def test_the_verdict_follows_from_the_interval(expected, values, word):
    found = difference(expected, dict(enumerate(values)), dict.fromkeys(range(3), 0.0))
    assert verdict(found, *bounds(expected)) == word


def test_bounds_of_one_entry_and_of_factors():
    assert verdict(interval([0.99, 0.98, 0.985]), *bounds(reaches("a", 0.9))) == "agrees"
    assert verdict(interval([0.99, 0.98, 0.985]), *bounds(stays_below("a", 0.9))) == "disagrees"
    twice = below("a", "b", by=2.0, ratio=True)
    assert bounds(twice) == (-math.inf, pytest.approx(math.log(0.5)))
    assert together(["agrees", "agrees"]) == "agrees" and together([]) == "not run"
    assert together(["agrees", "cannot tell"]) == "cannot tell"
    assert together(["cannot tell", "disagrees"]) == "disagrees"
    assert together(["agrees", verdict(None, 0, 1), "cannot tell"]) == "not run"


JUDGED = Finding(
    name="judged", about="Which?", entries=tuple(Entry(name, toy) for name in ("a", "b", "none"))
)


def judged(
    claim: Claim, halfway: float | dict[str, float] = 0.5, *, baseline: float = 0.1, **ends: float
):
    """The claim's one part, where each entry's metric was `halfway` at half of the training and ends there with 0.01 of spread."""
    made = dict.fromkeys(
        ["rate", "valid_value"], None
    ) | dict.fromkeys(["tokens", "parameters", "seconds"], 0)  # fmt: skip
    made |= {"finding": "judged", "task": "", "values": {}, "data_sha256": "", "config": {}}
    made |= {"metric": "accuracy", "better": "higher", "provenance": WHERE, "steps": 8}
    rows = [
        Tried(
            **made,
            entry=entry,
            seed=seed,
            value=end + 0.01 * seed,
            curve=[
                (2, 0.0),
                (4, (halfway[entry] if isinstance(halfway, dict) else halfway) + 0.01 * seed),
                (8, end + 0.01 * seed),
            ],
        )
        for entry, end in ends.items()
        for seed in range(3)
    ]
    (found,) = Results(
        replace(JUDGED, claims=(claim,)), rows, dict.fromkeys(ends, baseline)
    ).judged()
    (part,) = found.parts
    assert found.verdict == part.verdict
    return part


@pytest.mark.parametrize(
    ("expected", "halfway", "ends", "word", "because"),
    [
        (above("a", "b"), 0.5, {"a": 0.50, "b": 0.60}, "disagrees", None),
        (above("a", "b"), 0.3, {"a": 0.50, "b": 0.60}, "disagrees", None),  # b gains more than a
        (above("a", "b"), {"a": 0.3, "b": 0.55}, {"a": 0.50, "b": 0.60}, "cannot tell", "`a` gained 0.200 and `b` gained 0.050 in the second half"),
        (above("a", "b"), 0.3, {"a": 0.60, "b": 0.50}, "agrees", None),  # seen, however early
        (near("a", "b", within=0.1), 0.5, {"a": 0.5, "b": 0.52}, "agrees", None),
        (near("a", "b", within=0.1), 0.4, {"a": 0.5, "b": 0.52}, "agrees", None),  # both gain alike
        (near("a", "b", within=0.1), {"a": 0.35, "b": 0.52}, {"a": 0.5, "b": 0.52}, "cannot tell", "`a` gained 0.150 and `b` gained 0"),
        (above("a", "b", by=0.2), 0.5, {"a": 0.11, "b": 0.11}, "cannot tell", "`a` and `b` are no better than the trivial"),
        (near("a", "b", within=0.1), 0.5, {"a": 0.11, "b": 0.11}, "cannot tell", "baseline, 0.100"),
        (above("a", "b"), 0.0, {"a": 0.08, "b": 0.02}, "cannot tell", "`a` and `b` are no better than the trivial"),
        (above("a", "b"), 0.0, {"a": 0.5, "b": 0.02}, "agrees", None),  # one of them learned
        (reaches("a", 0.9), 0.5, {"a": 0.52}, "disagrees", None),
        (reaches("a", 0.9), 0.1, {"a": 0.52}, "cannot tell", "`a` gained 0.420"),
        (stays_below("a", 0.7), 0.5, {"a": 0.52}, "agrees", None),
        (stays_below("a", 0.7), 0.3, {"a": 0.52}, "cannot tell", "`a` gained 0.220"),  # it may yet rise
    ],
)  # fmt: skip
def test_what_was_not_seen_is_not_refuted_while_models_learn(
    expected, halfway, ends, word, because
):
    part = judged(Claim("?", "nobody", (expected,)), halfway, **ends)
    assert part.verdict == word
    assert part.reason is None if because is None else because in part.reason


def test_a_withdrawn_verdict_is_not_told_and_its_claim_stays(ledger, tmp_path):
    first, second = TOY.claims
    claims = (replace(first, withdrawn="unequal clocks: by 3 ms"), second)
    finding = replace(TOY, entries=TOY.entries[2:], claims=claims)
    run_finding(finding, ledger, tmp_path, progress=False)
    page = write(finding, ledger.findings(), tmp_path / "pages")
    told, rest = page.read_text().split("## Withdrawn")
    assert "Half the time." not in told and ": agrees" not in told + rest
    assert "Half the time." in rest and "  - *withdrawn: unequal clocks: by 3 ms*" in rest
    made = pages(page.parent, [finding])
    assert made[page] == page.read_text()
    assert "of 2 claims 1 disagrees, 1 withdrawn |" in made[page.parent / "README.md"]
    assert summary(stored(finding, page.with_suffix(".json")))[0]["verdict"] == "withdrawn"


def test_a_claim_is_judged_where_its_condition_holds():
    claim = Claim("?", "nobody", (above("a", "b"),), when=(above("a", "none", by=0.1),))
    assert judged(claim, a=0.6, b=0.5, none=0.3).verdict == "agrees"
    part = judged(claim, a=0.6, b=0.5, none=0.55)
    assert part.verdict == "cannot tell"
    assert part.reason == (
        "the claim needs `a` less `none` above 0.100, and here it is 0.050 (0.050 to 0.050)"
    )
    part = judged(claim, a=0.6, b=0.5)
    assert (part.verdict, part.reason) == ("not run", "its condition is of `a` and `none`")


def test_what_is_trained_before_an_entry_is_its_beginning(ledger, tmp_path):
    first, then = (Entry("fresh", toy), Entry("begun", toy, before=lambda: toy(norm_first=False)))
    finding = replace(
        TOY_TWO,
        entries=(first, then),
        measures=lambda fitted: {
            "weight": float(next(fitted.model.parameters()).detach().double().sum())
        },
    )
    tally = run_finding(finding, ledger, tmp_path, progress=False)
    assert tally.new == 4 and all(row.reason is None for row in tally.rows)
    fresh, begun = ([row for row in tally.rows if row.entry == name] for name in ("fresh", "begun"))
    weights = {row.values["weight"] for row in tally.rows}
    assert len(fresh) == len(begun) == 2 and len(weights) == 4
    assert [row.config["before"]["train"]["seed"] for row in begun] == [0, 1]
    page = write(finding, ledger.findings(), tmp_path / "pages").read_text()
    assert page.count(" ± ") == 4  # two seeds of one setting for each entry: metric and weight
    assert run_finding(finding, ledger, tmp_path, progress=False).found == 4
    with pytest.raises(OptionError, match="trains something before it"):
        Entry("none", values=lambda seed: {}, before=toy)


def test_the_page_is_drawn_again_from_its_json(ledger, tmp_path):
    run_finding(TOY, ledger, tmp_path, progress=False, command="regard arena toy")
    page = write(TOY, ledger.findings(), tmp_path / "pages")
    text = page.read_text()
    agrees, rest = text.split("## Disagrees")
    assert "Half the time." in agrees and "Twice the time." in rest and "It is a toy." in rest
    assert "`regard arena toy` at commit" in text and "± " in text
    assert "Without a model: accuracy 0" in text and "(most frequent class)" in text
    made = pages(tmp_path / "pages", [TOY, replace(TOY, name="other")])
    assert {path.name for path in made} == {"toy.md", "toy.svg", "README.md"}
    for path in made.keys() & {page, page.with_suffix(".svg")}:
        assert made[path] == path.read_text()
    assert "| other | Which of two? | not run yet |" in made[tmp_path / "pages" / "README.md"]
    changed = json.loads(page.with_suffix(".json").read_text())
    changed["rows"][0]["value"] = "high"
    page.with_suffix(".json").write_text(json.dumps(changed))
    with pytest.raises(StoredDataError, match=r"toy\.json holds no finding: value must be"):
        read(page.with_suffix(".json"))


def test_rows_of_another_budget_are_not_mixed(ledger, tmp_path):
    run_finding(TOY_TWO, ledger, tmp_path, progress=False)
    run_finding(TOY_TWO, ledger, tmp_path, seeds=(0,), tokens=100, progress=False)
    rows = read(write(TOY_TWO, ledger.findings(), tmp_path / "p").with_suffix(".json"))
    assert {(row.entry, row.seed) for row in rows} == {("first", 0), ("second", 0)}
    assert all(row.config["train"]["tokens"] == 100 for row in rows)


OWN = "tests.lab.findings.test_findings:ONE"


def test_mistakes_get_one_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ledger = ["--ledger", str(tmp_path / "l.sqlite")]
    for words, said in [
        (["arena", "quik"], "unknown suite 'quik'. Did you mean 'quick'?"),
        (["arena", OWN, "--dim", "8", *ledger], "--dim is of a suite"),
        (["arena", OWN, "--hours", "-1", *ledger], "hours (-1.0) must be greater than 0"),
        (["arena", OWN, "--tokens", "0", *ledger], "tokens (0) must be a positive integer"),
        (["report", "--finding", OWN, *ledger], "has nothing of one yet"),
        (["report", "--finding", "quick", *ledger], "there is no module 'quick'"),
    ]:
        assert main(words) == 2
        (line,) = capsys.readouterr().err.splitlines()
        assert said in line


def test_a_finding_that_contradicts_itself_is_refused():
    with pytest.raises(OptionError, match="two entries 'first'"):
        replace(TOY, entries=(TOY.entries[0],) * 2, claims=())
    with pytest.raises(UnknownNameError, match="unknown entry of toy 'speed: times'"):
        replace(TOY, entries=TOY.entries[:2])
    with pytest.raises(OptionError, match="needs one of run and values"):
        Entry("none")


ONE = replace(TOY, name="one", entries=TOY.entries[2:3], claims=())


def test_one_of_your_own_runs_from_the_command_line(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    name = "tests.lab.findings.test_findings:ONE"
    assert main(["arena", name]) == 0
    assert "one: 2 new results, 0 already there" in capsys.readouterr().out
    assert main(["report", "--finding", name, "--folder", "pages"]) == 0
    assert "| times | 2.000 ± " in Path("pages/one.md").read_text()
