"""The recommendation: capabilities with reasons, growth with its error, crossovers, and one sentence."""

import math
from dataclasses import replace
from itertools import chain

import pytest

from regard import MIXERS, OptionError, UnknownNameError
from regard.core import Catalog
from regard.lab.arena import recommend
from regard.lab.arena.ledger import Ledger
from regard.lab.arena.recommend import Case, Crossover, Growth, crossover
from regard.lab.arena.report.summary import LedgerSummary
from regard.lab.arena.results import LawsChecked, Timed, Trained
from tests.lab.arena.made_up import WHERE, rows


def timings(mixer, time, *, lengths=(256, 512, 1024, 2048), peak=lambda n: n, kind="forward"):
    """Beside softmax of n^2 microseconds."""
    return [
        Timed(
            mixer=mixer,
            options={},
            kind=kind,
            length=n,
            batch=1,
            dim=64,
            num_heads=4,
            causal=True,
            median_ms=time(n),
            low_ms=0.98 * time(n),
            high_ms=1.02 * time(n),
            baseline_ms=1e-3 * n**2,
            peak_bytes=round(peak(n)),
            rounds=5,
            provenance=WHERE,
        )
        for n in lengths
    ]


SOFTMAX = timings("softmax", lambda n: 1e-3 * n**2)
LINEAR = timings("linear", lambda n: 5.0 * n)  # crosses at 5,000
LOCAL = timings("local", lambda n: 0.5 * n)  # crosses at 500


def test_an_empty_ledger_gives_capabilities_and_declared_costs():
    found = recommend.recommend(Case(length=512, causal=True, cross=True))
    names = {candidate.mechanism for candidate in found.ranked}
    assert names | found.excluded.keys() == set(MIXERS.names())
    for name, cls in MIXERS.items():
        why = {n: r for n, r in cls.capabilities.refusals().items() if n in ("causal", "cross")}
        assert (name in found.excluded) == bool(why)
        if why:
            assert found.excluded[name].split(": ", 1)[1] in why.values()
    assert found.choice == "softmax" and "--measure" in found.sentence
    assert "capabilities and declared costs only" in found.notes[0]
    assert all(c.ratio is None and c.as_good is None and c.cost for c in found.ranked)


def test_growth_finds_a_planted_law_and_its_error():
    planted = lambda n: 3.0 + 0.02 * n + 1e-5 * n**2  # noqa: E731
    points = tuple((n, planted(n)) for n in (256, 1024, 2048, 4096))
    far = Growth(points, 2.0, 0.01).at(32768)
    assert not far.measured and far.value == pytest.approx(planted(32768), rel=1e-6)
    assert Growth(points, 2.0, 0.01).at(1024) == recommend.Estimate(planted(1024), 0.01, True)
    noisy = tuple((n, v * f) for (n, v), f in zip(points, (1.03, 0.96, 1.05, 0.97), strict=True))
    guess = Growth(noisy, 2.0).at(32768)
    assert guess.low < planted(32768) < guess.high and 0 < guess.error < 1
    assert Growth(noisy, 2.0).at(65536).error > guess.error > Growth(noisy, 2.0).at(8192).error
    alone = Growth(((512, 4.0),), 2.0).at(1024)
    assert (alone.value, alone.error) == (16.0, None)


@pytest.mark.parametrize("own, at, measured", [(LOCAL, 500, True), (LINEAR, 5000, False)])
def test_a_crossover_is_found_with_its_interval(own, at, measured):
    found = crossover(LedgerSummary([*SOFTMAX, *own]), own[0].mixer, "forward")
    assert found.at == pytest.approx(at, rel=0.06) and found.measured == measured
    assert found.low < found.at < found.high
    assert found.low < at < found.high
    assert str(found).endswith("by growth") != measured


def test_a_crossover_that_is_nowhere():
    slow = timings("linear", lambda n: 2e-3 * n**2)
    found = crossover(LedgerSummary([*SOFTMAX, *slow]), "linear", "forward")
    assert found.at is None and str(found).startswith("not up to")
    assert str(Crossover(900.0, 800.0, None, 4096, True)) == "900 (800 to over 4,096)"
    assert crossover(LedgerSummary(SOFTMAX), "linear", "forward") is None


def said(length, *of, **wanted):
    return recommend.recommend(Case(length=length, causal=True, **wanted), [*SOFTMAX, *chain(*of)])


def test_the_sentence():
    found = said(300, LINEAR, LOCAL)
    assert found.choice == "softmax"
    assert found.sentence == "Use fused softmax: nothing wins below N = 500, where local does."
    found = said(2048, LINEAR, LOCAL)
    assert found.choice == "local"
    assert found.sentence.startswith("Use local: 4.1× as fast as fused softmax at 2,048 tokens")
    assert "measured, with a quality that nothing here has measured" in found.sentence
    assert [candidate.mechanism for candidate in found.ranked][:3] == ["local", "softmax", "linear"]
    assert found.ranked[0].ratio.value == pytest.approx(0.5 / 2.048)
    far = said(20480, LINEAR, LOCAL)
    assert far.choice == "local" and "by fitted growth" in far.sentence
    assert far.ranked[0].ms.value == pytest.approx(0.5 * 20480, rel=0.05)
    (base,) = (candidate for candidate in far.ranked if candidate.mechanism == "softmax")
    assert (base.ratio.value, base.ratio.error) == (1.0, 0.0) and base.crossover is None
    never = timings("linear", lambda n: 2e-3 * n**2)
    assert said(300, never).sentence == "Use fused softmax: nothing wins at 300 tokens."


def test_memory_excludes():
    hungry = timings("local", lambda n: 0.5 * n, peak=lambda n: 1e3 * n)
    found = said(2048, hungry, LINEAR, memory=1e6)
    assert found.choice == "softmax" and "linear" not in found.excluded
    assert found.excluded["local"] == "needs 2.05 MB at 2,048 tokens, and 1 MB are allowed"


def test_quality_decides_and_a_broken_law_excludes():
    ledger = rows(seeds=(0, 1, 2))
    free = recommend.recommend(Case(length=4096), ledger)
    judged = recommend.recommend(Case(length=4096, task="digits"), ledger)
    summary = LedgerSummary(ledger)
    good = {quality.mechanism for quality in summary.as_good("digits")}
    assert judged.choice in good and "digits" in judged.sentence
    assert {c.mechanism for c in judged.ranked if c.as_good} == good & set(MIXERS.names())
    assert all(set(c.quality) <= {"listops", "digits"} for c in free.ranked)
    broken = LawsChecked(
        mixer=judged.choice,
        options={},
        source_sha256="0",
        failed_law="padding",
        message="padding: row 1 differs",
        seconds=1.0,
        provenance=WHERE,
    )
    again = recommend.recommend(Case(length=4096, task="digits"), [*ledger, broken])
    assert "padding: row 1 differs" in again.excluded[judged.choice]
    with pytest.raises(UnknownNameError, match=r"unknown trained task 'digit'\. Did you mean"):
        recommend.recommend(Case(length=4096, task="digit"), ledger)
    named = [replace(row, task=f"{row.task} (a.csv)") for row in ledger if isinstance(row, Trained)]
    timed = [row for row in ledger if isinstance(row, Timed)]
    mine = recommend.recommend(Case(length=4096, task="digits"), [*named, *timed])
    assert mine.case.task == "digits (a.csv)" and mine.choice == judged.choice


def test_what_cannot_be_asked_is_refused():
    with pytest.raises(OptionError, match="memory"):
        Case(length=5, memory=-1)
    with pytest.raises(OptionError, match="decode cannot be joined"):
        Case(length=5, decode=True, train=True)


def test_measuring_fills_the_ledger(tmp_path, monkeypatch):
    few = Catalog("mixer", (MIXERS["softmax"], MIXERS["linear"], MIXERS["fnet"]))
    monkeypatch.setattr(recommend, "MIXERS", few)
    case = Case(length=128, causal=True)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        new = recommend.measure(case, ledger, seconds=0.01)
        assert {(row.mixer, row.length) for row in new} == {
            (mixer, n) for mixer in ("softmax", "linear") for n in (8, 32, 64, 128)
        }
        assert ledger.results() == new
        found = recommend.recommend(case, ledger.results())
    assert {c.mechanism for c in found.ranked} == {"softmax", "linear"}
    assert all(c.ratio.measured and math.isfinite(c.ms.value) for c in found.ranked)
    assert list(found.excluded) == ["fnet"]


def test_newer_rows_count(tmp_path):
    newer = [
        replace(row, median_ms=9e9, high_ms=9e9, provenance=replace(WHERE, started="2027"))
        for row in LOCAL
    ]
    assert said(2048, LOCAL, newer).choice == "softmax"
