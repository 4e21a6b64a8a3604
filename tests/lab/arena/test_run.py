"""Running a suite: what is missing is done, what cannot be is said, and a kill loses nothing."""

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import regard.lab.arena.run as arena
from regard import MIXERS, OptionError, UnknownNameError, UnsupportedError
from regard.lab.arena import laws, trial
from regard.lab.arena.block import equal_block
from regard.lab.arena.choice import Choice
from regard.lab.arena.ledger import Ledger, canonical
from regard.lab.arena.report.summary import LedgerSummary
from regard.lab.arena.results import LawsChecked, NotRun, Timed, Trained, current
from regard.lab.arena.run import run_suite
from regard.lab.arena.suite import QUICK, SUITES, Contest, ModelSize, Race, Suite
from regard.lab.tasks import Digits, ListOps, StdlibBytes
from regard.lab.train import TrainConfig
from regard.models import count_parameters
from regard.testing import LawError
from tests.lab.arena.test_ledger import timed as a_timing

SIZE = ModelSize(dim=16, num_heads=2, num_layers=1)
TRAIN = TrainConfig(steps=2, batch_size=4, eval_every=1, checkpoint_every=1, log_dir=None)
LISTOPS = Contest(
    task=ListOps(train_size=16, valid_size=4, test_size=4, min_length=5, max_length=20),
    train=TRAIN,
    size=SIZE,
)
BYTES = Contest(task=StdlibBytes(length=16, valid_size=2, test_size=2), train=TRAIN, size=SIZE)
RACE = Race(lengths=(8, 16), passes=("forward", "decode"), dim=16, num_heads=2, seconds=0.01)
TINY = Suite(
    name="tiny",
    about="seconds",
    mixers=("softmax", "linear", "fnet"),
    contests=(LISTOPS, BYTES),
    race=RACE,
)


@pytest.fixture
def ledger(tmp_path):
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        yield ledger


@pytest.fixture
def lawful(monkeypatch):
    """Every mixer keeps every law, at once."""
    monkeypatch.setattr(laws, "check_mixer", lambda factory, **_: ["all"])


def of(cls, rows):
    return [row for row in rows if isinstance(row, cls)]


def test_a_suite_fills_the_ledger(ledger, tmp_path, lawful):
    outcome = run_suite(TINY, ledger, tmp_path, command="regard arena tiny", progress=False)
    rows = ledger.results()
    assert outcome.found == 0 and outcome.new == len(of((LawsChecked, Trained, Timed), rows))
    trained = {(row.task, row.mixer): row for row in of(Trained, rows)}
    assert set(trained) == {("listops", m) for m in TINY.mixers} | {
        ("stdlib_bytes", m) for m in ("softmax", "linear")
    }
    assert all(
        row.provenance.command == "regard arena tiny" and row.steps == 2 for row in trained.values()
    )
    assert len({row.data_sha256 for row in trained.values()}) == 2
    timed = {(row.mixer, row.kind, row.unit, row.length): row for row in of(Timed, rows)}
    able = {(m, "forward") for m in TINY.mixers} | {(m, "decode") for m in ("softmax", "linear")}
    assert set(timed) == {(*of, u, n) for of in able for u in ("block", "layer") for n in (8, 16)}
    for (mixer, kind, unit, length), row in timed.items():
        assert row.baseline_ms == timed["softmax", kind, unit, length].median_ms
        assert (row.ratio == 1) == (mixer == "softmax")
        assert row.is_equal and (unit == "layer" or row.parameters > 0)
        assert (
            row.low_ms <= row.median_ms <= row.high_ms
            and row.rounds >= 3
            and row.peak_bytes > 0
            and row.flops > 0
        )
    absent = {(row.mixer, row.subject): row.reason for row in of(NotRun, rows)}
    refusals = MIXERS["fnet"].capabilities.refusals()
    assert absent == {
        ("fnet", "stdlib_bytes"): f"fnet does not support causal: {refusals['causal']}",
        ("fnet", "decode"): f"fnet does not support streaming: {refusals['streaming']}",
    }
    assert sorted(map(canonical, outcome.results)) == sorted(map(canonical, current(rows)))


def test_a_second_run_trains_and_times_nothing(ledger, tmp_path, lawful, monkeypatch):
    first = run_suite(TINY, ledger, tmp_path, progress=False)
    before = ledger.results()

    def never(*args, **kwargs):
        raise AssertionError("nothing was to be done")

    for module, name in ((arena.trial, "train"), (arena.speed, "measure"), (laws, "check_mixer")):
        monkeypatch.setattr(module, name, never)
    second = run_suite(TINY, ledger, tmp_path, progress=False)
    assert (second.new, second.found) == (0, first.new)
    assert ledger.results() == before
    assert sorted(map(canonical, second.results)) == sorted(map(canonical, first.results))


def test_only_what_is_missing_is_done(ledger, tmp_path, lawful):
    run_suite(
        replace(TINY, mixers=("softmax", "fnet"), race=None), ledger, tmp_path, progress=False
    )
    assert len(of(Trained, ledger.results())) == 3
    outcome = run_suite(
        replace(TINY, contests=(LISTOPS,), race=None, seeds=(0, 1)),
        ledger,
        tmp_path,
        progress=False,
    )
    assert len(of(Trained, ledger.results())) == 3 + 1 + 3  # linear at seed 0, and three at seed 1
    assert outcome.new == 1 + 4  # the laws of linear too


def test_each_mechanism_tries_every_rate_and_the_best_on_validation_serves_the_other_seeds(
    ledger, tmp_path, lawful
):
    rates = (1e-4, 1e-2, 1e-1)
    suite = replace(
        TINY,
        mixers=("softmax", "linear"),
        contests=(replace(LISTOPS, train=replace(TRAIN, steps=8)),),
        race=None,
        seeds=(3, 4, 5),
        rates=rates,
    )
    rows = of(Trained, run_suite(suite, ledger, tmp_path, progress=False).results)
    assert [(r.mixer, r.rate) for r in rows[:6]] == [
        (mixer, rate) for rate in rates for mixer in ("softmax", "linear")
    ]
    summary = LedgerSummary(ledger.results())
    for mixer in ("softmax", "linear"):
        first = [row for row in rows if row.mixer == mixer and row.seed == 3]
        best = max(first, key=lambda row: row.valid_value)
        after = [(row.seed, row.rate) for row in rows if row.mixer == mixer and row.seed != 3]
        assert after == [(4, best.rate), (5, best.rate)]
        shown = summary.quality["listops", mixer].runs
        assert [(row.seed, row.rate) for row in shown] == [(s, best.rate) for s in (3, 4, 5)]
    assert run_suite(suite, ledger, tmp_path, progress=False).new == 0


def test_a_rough_timing_comes_first_and_counts_no_longer_where_a_law_is_broken(
    ledger, tmp_path, monkeypatch
):
    def check(factory, **_):
        if factory().name == "linear":
            raise LawError("causality: linear: token 3 moves output 1")

    monkeypatch.setattr(laws, "check_mixer", check)
    monkeypatch.setattr(arena, "REDRAW", 0.0)
    race = replace(RACE, passes=("forward",), units=("block",), rough=0.001, lengths=(8, 1024))
    suite = replace(TINY, mixers=("softmax", "linear"), contests=(), race=race)
    seen = []
    run_suite(
        suite,
        ledger,
        tmp_path,
        progress=False,
        redraw=lambda: seen.append(len(ledger.results())),
    )
    rows = ledger.results()
    kinds = [(type(row).__name__, row.mixer, getattr(row, "length", None)) for row in rows]
    assert kinds == [
        ("Timed", "softmax", 8),
        ("Timed", "linear", 8),
        ("LawsChecked", "softmax", None),
        ("LawsChecked", "linear", None),
        ("NotRun", "linear", None),
        ("Timed", "softmax", 8),
        ("Timed", "softmax", 1024),
    ]
    assert {row.mixer for row in of(Timed, current(rows))} == {"softmax"}
    assert seen == [2, 3, 4, 6, 7]  # after each job
    assert any("Laws not run yet: softmax" in n for n in LedgerSummary(rows[:2]).notes)


def test_mechanisms_that_are_not_trained_are_timed(ledger, tmp_path, lawful):
    suite = replace(TINY, contests=(LISTOPS,), trained=("fnet",), race=replace(RACE, lengths=(8,)))
    rows = run_suite(suite, ledger, tmp_path, progress=False).results
    assert {row.mixer for row in of(Trained, rows)} == {"fnet"}
    assert {row.mixer for row in of(Timed, rows)} == set(TINY.mixers)
    late = replace(suite, seeds=(9,), hours=1e-9)
    assert run_suite(late, ledger, tmp_path, progress=False).left == 1


def test_whatever_determines_a_result_is_in_its_key(ledger, tmp_path, lawful):
    small = replace(TINY, mixers=("softmax",), contests=(LISTOPS,), race=None)
    run_suite(small, ledger, tmp_path, progress=False)
    for other in (
        replace(LISTOPS, train=replace(TRAIN, lr=1e-4)),
        replace(LISTOPS, size=replace(SIZE, dim=32)),
        replace(LISTOPS, task=replace(LISTOPS.task, seed=1)),
    ):
        assert (
            run_suite(replace(small, contests=(other,)), ledger, tmp_path, progress=False).new == 1
        )
    grouped = Choice(mixer="softmax", options={"num_kv_heads": 1})
    assert run_suite(replace(small, mixers=(grouped,)), ledger, tmp_path, progress=False).new == 2


def test_a_mixer_that_breaks_a_law_is_not_measured(ledger, tmp_path, monkeypatch):
    def check(factory, **_):
        if factory().name == "linear":
            raise LawError("causality: linear: token 3 moves output 1")

    monkeypatch.setattr(laws, "check_mixer", check)
    run_suite(TINY, ledger, tmp_path, progress=False)
    rows = ledger.results()
    assert not [row for row in of((Trained, Timed), rows) if row.mixer == "linear"]
    absent = [row for row in of(NotRun, rows) if row.mixer == "linear"]
    assert {row.subject for row in absent} == {"listops", "stdlib_bytes", "forward", "decode"}
    assert all(
        row.reason == "linear breaks a law. causality: linear: token 3 moves output 1"
        for row in absent
    )
    (verdict,) = [row for row in of(LawsChecked, rows) if row.mixer == "linear"]
    assert verdict.failed_law == "causality"


def test_only_the_librarys_own_mixers_are_judged_in_the_shorter_form(ledger, tmp_path, monkeypatch):
    class Mine(MIXERS["linear"]):
        name = "mine"

    shorter = {}

    def check(factory, *, variant):
        shorter[factory().name] = variant

    monkeypatch.setattr(laws, "check_mixer", check)
    suite = replace(TINY, mixers=("linear", Mine), contests=(LISTOPS,), race=None)
    run_suite(suite, ledger, tmp_path, progress=False)
    assert shorter == {"linear": True, "mine": False}


def test_laws_are_run_anew_when_the_source_changes(ledger, tmp_path, monkeypatch):
    verdicts = []

    def check(factory, **_):
        verdicts.append(factory().name)
        if laws.source_sha256() == "broken":
            raise LawError("padding: softmax: no")

    monkeypatch.setattr(laws, "check_mixer", check)
    suite = replace(TINY, mixers=("softmax",), contests=(LISTOPS,), race=None)
    for source, present in (
        ("good", Trained),
        ("good", Trained),
        ("broken", NotRun),
        ("good", Trained),
    ):
        monkeypatch.setattr(laws, "source_sha256", lambda source=source: source)
        outcome = run_suite(suite, ledger, tmp_path, progress=False)
        assert isinstance(outcome.results[-1], present)
        assert [
            type(row) for row in current(ledger.results()) if not isinstance(row, LawsChecked)
        ] == [present]
    assert len(verdicts) == 3
    assert len(of(Trained, ledger.results())) == 1


def test_the_laws_are_the_real_ones(ledger, tmp_path):
    run_suite(
        replace(TINY, mixers=("fnet",), contests=(), race=None), ledger, tmp_path, progress=False
    )
    (verdict,) = ledger.results()
    assert isinstance(verdict, LawsChecked) and verdict.failed_law is None, verdict


def test_wrong_names_and_options_are_found_before_any_compute(ledger, tmp_path):
    with pytest.raises(UnknownNameError, match="Did you mean 'linear'"):
        run_suite(replace(TINY, mixers=("softmax", "liner")), ledger, tmp_path, progress=False)
    wrong = Choice(mixer="softmax", options={"num_kv_heads": 2, "shared_qk": True})
    with pytest.raises(OptionError, match="shared_qk"):
        run_suite(replace(TINY, mixers=(wrong,)), ledger, tmp_path, progress=False)
    assert ledger.results() == []


KILLED = """
import sys
from pathlib import Path
from tests.lab.arena.test_run import TINY, LISTOPS, replace, laws, run_suite, Ledger
laws.check_mixer = lambda factory, **_: ["all"]
laws.source_sha256 = lambda: "the same"
with Ledger(sys.argv[1]) as ledger:
    run_suite(replace(TINY, contests=(LISTOPS,), seeds=tuple(range(50)), race=None), ledger, Path(sys.argv[2]))
"""


def test_a_kill_loses_nothing_committed(tmp_path, lawful, monkeypatch):
    monkeypatch.setattr(laws, "source_sha256", lambda: "the same")
    path, root = tmp_path / "ledger.sqlite", Path(__file__).parents[3]
    environment = os.environ | {"PYTHONPATH": str(root), "OMP_NUM_THREADS": "1"}
    worker = subprocess.Popen(
        [sys.executable, "-c", KILLED, str(path), str(tmp_path)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    committed = []
    for _ in range(600):
        time.sleep(0.05)
        if path.exists():
            with Ledger(path) as ledger:
                committed = ledger.results()
        if len(of(Trained, committed)) >= 2 or worker.poll() is not None:
            break
    assert worker.poll() is None, "it ended by itself"
    os.kill(worker.pid, signal.SIGKILL)
    worker.wait()
    with Ledger(path) as ledger:
        after = ledger.results()
        assert after[: len(committed)] == committed
        done = len(of(Trained, after))
        seeds = tuple(range(done // 3 + 1))
        suite = replace(TINY, contests=(LISTOPS,), seeds=seeds, race=None)
        outcome = run_suite(suite, ledger, tmp_path, progress=False)
        assert outcome.found >= len(committed)
        assert len(of(Trained, ledger.results())) >= 3 * len(seeds)


SHARED = replace(
    TINY,
    contests=(LISTOPS,),
    seeds=(0, 1, 2),
    race=replace(RACE, lengths=(8,), units=("layer",)),
)


def _join(path, folder, done, die_after):
    """One worker of several; killed in the middle of its trial number `die_after`."""
    torch.set_num_threads(1)
    laws.check_mixer = lambda factory, **_: ["all"]
    laws.source_sha256 = lambda: "the same"
    real, begun = trial.train, []

    def train(*arguments, **options):
        begun.append(1)
        if len(begun) == die_after:
            os.kill(os.getpid(), signal.SIGKILL)
        row = real(*arguments, **options)
        done.put((os.getpid(), row.mixer, row.seed))
        return row

    trial.train = train
    with Ledger(path) as ledger:
        run_suite(SHARED, ledger, folder, progress=False)


def test_workers_on_one_ledger_share_the_work_and_follow_the_dead(tmp_path):
    context = multiprocessing.get_context("fork")
    path, done = tmp_path / "ledger.sqlite", context.SimpleQueue()
    arguments = (path, tmp_path / "trials", done)
    workers = [context.Process(target=_join, args=(*arguments, die)) for die in (0, 0, 2)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join(120)
    assert sorted(worker.exitcode for worker in workers) in ([-9, 0, 0], [0, 0, 0])
    with Ledger(path) as ledger:
        rows = ledger.results()
    trained = [(row.mixer, row.seed) for row in of(Trained, rows)]
    assert sorted(trained) == [(m, s) for m in ("fnet", "linear", "softmax") for s in (0, 1, 2)]
    assert len(of(LawsChecked, rows)) == 3 and len(of(Timed, rows)) == 3 + 2
    finished = []
    while not done.empty():
        finished.append(done.get())
    assert sorted(row[1:] for row in finished) == sorted(trained)  # none twice
    assert len({pid for pid, *_ in finished}) >= 2  # and more than one worked


def test_a_block_is_as_large_as_softmaxs():
    """GAU and FLASH two layers, fnet a wider feed-forward; gMLP's weights by position leave no room at 4,096 tokens."""
    block = lambda name, n: equal_block(  # noqa: E731
        Choice(mixer=name), dim=64, num_heads=4, max_len=n, causal=False
    )
    softmax = count_parameters(block("softmax", 64))
    for name, layers in (("softmax", 1), ("gau", 2), ("flash", 2), ("gmlp", 2), ("fnet", 1)):
        with torch.device("meta"):
            assert len(block(name, 64).build().blocks.mixers) == layers
        assert count_parameters(block(name, 64)) == pytest.approx(softmax, rel=0.1)
    large = count_parameters(block("gmlp", 4096))
    assert large > 2 * softmax
    row = Timed(**vars(a_timing()) | {"unit": "block", "parameters": large})
    assert not replace(row, baseline_parameters=softmax).is_equal
    assert replace(row, baseline_parameters=softmax, unit="layer").is_equal


def test_every_contest_of_a_suite_is_fair():
    for suite in SUITES.values():
        for contest in suite.contests:
            target = count_parameters(trial.model_config(contest, Choice(mixer="softmax")))
            for choice in suite.choices:
                if suite.trained and choice.name not in suite.trained:
                    continue
                if (
                    choice.refusal(choice.sketch(), "causal")
                    and contest.task.kind == "language_model"
                ):
                    continue
                try:
                    model = trial.model_config(contest, choice)
                except (OptionError, UnsupportedError):
                    assert suite is not QUICK  # elsewhere it appears as not run, with the reason
                    continue
                assert model.dim == contest.size.dim
                assert abs(count_parameters(model) - target) <= 0.1 * target, (
                    contest.task.name,
                    choice.name,
                )


def test_quick_is_what_it_says():
    assert [contest.task.name for contest in QUICK.contests] == [
        "listops",
        "digits",
        "stdlib_bytes",
    ]
    assert {choice.name for choice in QUICK.choices} == set(MIXERS.names())
    assert set(QUICK.trained) < set(MIXERS.names()) and len(QUICK.seeds) == 3
    assert replace(QUICK, mixers="all").choices == [Choice(mixer=name) for name in MIXERS.names()]
    assert all(
        contest.train.patience is None for contest in QUICK.contests
    )  # the same tokens for all
    assert isinstance(QUICK.contests[1].task, Digits)
