"""The recommendation: capabilities with reasons, growth with its error, and one sentence."""

import math
from dataclasses import replace

import pytest
import torch

from regard import MIXERS, OptionError, UnknownNameError
from regard.core import Catalog
from regard.functional.patterns import Window
from regard.lab import recommend
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.lines import LINES
from regard.lab.experiment.row import Row, as_json
from regard.lab.growth import Estimate, Growth
from regard.lab.questions import QUESTIONS
from regard.lab.recommend import Case
from tests.lab.experiment.tiny import WHERE

LATER = replace(WHERE, started="2027-01-01T00:00:00Z")
LENGTHS = (256, 512, 1024, 2048)


def row(kind, entry, column, **fields):
    entry = Entry(mixer=entry) if isinstance(entry, str) else entry
    about = {"mixer": entry.name, "options": as_json(dict(entry.options)), "source": entry.source}
    about |= {"cell": f"{column}, {entry.label}", "provenance": WHERE} | fields
    return Row(kind=kind, question="made up", column=column, entry=entry.label, **about)


def timings(entry, time, *, peak=lambda n: n, where=WHERE, unit="block"):
    """Beside softmax of n^2 microseconds."""
    setting = {"kind": "forward", "batch": 1, "dim": 64, "num_heads": 4, "unit": unit, "impl": "plain"}  # fmt: skip
    rows = []
    for n in LENGTHS:
        ms = {"ms": time(n), "low_ms": 0.98 * time(n), "high_ms": 1.02 * time(n)}
        values = ms | {"baseline_ms": 1e-3 * n**2, "peak_bytes": float(peak(n)), "rounds": 5.0}
        about = {"causal": True, "provenance": where, "setting": setting | {"length": n}}
        rows.append(row("timed", entry, f"forward {n}", values=values, **about))
    return rows


SOFTMAX = timings("softmax", lambda n: 1e-3 * n**2)
LINEAR = timings("linear", lambda n: 5.0 * n)  # crosses at 5,000
LOCAL = timings("local", lambda n: 0.5 * n)  # crosses at 500
SLOW = timings("local", lambda n: 9e9, where=LATER)
FAST = timings("local", lambda n: 0.1 * n) + timings("linear", lambda n: 0.2 * n)
BYTES = {"metric": "bits_per_byte", "better": "lower", "column": "bytes", "chance": 8.0}


def trained(scores, metric="accuracy", better="higher", column="lookup", chance=0.25):
    """A question's record and rows: label -> value of each seed, of this column; the lines are at 0.3, or at 6 bits."""
    entries = (*(Entry(mixer=name) for name in scores), *LINES)
    rows = [
        row("trained", entry, column, metric=metric, better=better, value=value, seed=seed,
            causal=False, chance=chance, reason=None if value is not None else "it diverged")
        for entry in entries
        for seed, value in enumerate(scores.get(entry.label, [0.3 if better == "higher" else 6.0] * 2))
    ]  # fmt: skip
    facts = {"name": column, "kind": "trained", "metric": metric, "better": better, "causal": False}
    config = {
        "entries": [{"label": e.label, "source": e.source} for e in entries if e not in LINES],
        "columns": [facts | {"later": False}],
        "lines": [line.label for line in LINES],
        "cells": [[e.label, column, f"{column}, {e.label}", False, None, None] for e in entries],
        "mark": 0.9, "claims": [], "seeds": [0, 1], "rates": [], "kind": "screen", "name": column,
    }  # fmt: skip
    nothing = dict.fromkeys(("column", "entry", "cell", "source"), "")
    asked = Row(kind="asked", question=f"of {column}", provenance=WHERE, config=config, **nothing)
    return [asked, *rows]


def said(length, *of, **wanted):
    rows = [row for rows in (SOFTMAX, *of) for row in rows]
    return recommend.recommend(Case(length=length, causal=True, **wanted), rows)


def marks(found, column):
    return {c.mechanism: c.quality[column].mark for c in found.ranked if c.quality}


def test_an_empty_ledger_gives_capabilities_and_declared_costs():
    found = recommend.recommend(Case(length=512, causal=True, cross=True))
    names = {candidate.mechanism for candidate in found.ranked}
    assert names | found.excluded.keys() == set(MIXERS.names())
    for name, cls in MIXERS.items():
        why = {n: r for n, r in cls.capabilities.refusals().items() if n in ("causal", "cross")}
        assert (name in found.excluded) == bool(why)
        assert not why or found.excluded[name].split(": ", 1)[1] in why.values()
    assert found.choice == "softmax" and "--measure" in found.sentence
    assert "capabilities and declared costs only" in found.notes[0]
    assert all(c.ratio is None and not c.quality and c.cost for c in found.ranked)


def test_what_rows_cannot_hold_is_told_and_stands_for_nothing_else():
    mapped = Entry(mixer="linear", options={"feature_map": torch.square})
    windows = Entry(
        mixer="head_mix", options={"patterns": [Window(8, 0), Window(2, 0)]}, title="mine"
    )
    found = said(2048, timings(mapped, lambda n: n), timings(windows, lambda n: n))
    for label in (mapped.label, "mine"):
        assert "functions or objects" in found.excluded[label]
    assert {"linear", "head_mix"} <= {one.mechanism for one in found.ranked}


def test_growth_finds_a_planted_law_and_its_error():
    planted = lambda n: 3.0 + 0.02 * n + 1e-5 * n**2  # noqa: E731
    points = tuple((n, planted(n)) for n in (256, 1024, 2048, 4096))
    far = Growth(points, 2.0, 0.01).at(32768)
    assert not far.measured and far.value == pytest.approx(planted(32768), rel=1e-6)
    assert Growth(points, 2.0, 0.01).at(1024) == Estimate(planted(1024), 0.01, True)
    noisy = tuple((n, v * f) for (n, v), f in zip(points, (1.03, 0.96, 1.05, 0.97), strict=True))
    near, guess, farther = (Growth(noisy, 2.0).at(n) for n in (8192, 32768, 65536))
    assert guess.low < planted(32768) < guess.high and 0 < guess.error < 1
    assert farther.error > guess.error > near.error
    alone = Growth(((512, 4.0),), 2.0).at(1024)
    assert (alone.value, alone.error) == (16.0, None)


def test_the_sentence():
    found = said(300, LINEAR, LOCAL)
    assert found.choice == "softmax"
    assert found.sentence == "Use fused softmax: nothing wins at 300 tokens."
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
    assert (base.ratio.value, base.ratio.error) == (1.0, 0.0)
    never = timings("linear", lambda n: 2e-3 * n**2)
    assert said(300, never).sentence == "Use fused softmax: nothing wins at 300 tokens."
    hungry = timings("local", lambda n: 0.5 * n, peak=lambda n: 1e3 * n)
    alone = said(4096, hungry[:1], memory=1e6)  # whose growth nothing shows
    assert alone.choice == "softmax" and "local" not in alone.excluded
    assert (
        "Not chosen for speed, since timed at one length, which shows no growth: local."
        in alone.notes
    )
    across = said(8192, LINEAR, cross=True)
    assert "by fitted growth within one sequence" in across.sentence
    assert across.notes[0].endswith("tokens, queries and keys of one sequence.")


def test_memory_and_broken_laws_exclude():
    hungry = timings("local", lambda n: 0.5 * n, peak=lambda n: 1e3 * n)
    found = said(2048, hungry, LINEAR, memory=1e6)
    assert found.choice == "softmax" and "linear" not in found.excluded
    assert found.excluded["local"] == "needs 2.05 MB at 2,048 tokens, and 1 MB are allowed"
    found = said(2048, LOCAL, [row("laws", "local", "laws", reason="padding: row 1 differs")])
    assert found.choice == "softmax"
    assert found.excluded["local"] == "breaks a law. padding: row 1 differs"


def test_a_task_is_a_trained_column_that_the_choice_reached():
    scores = {"softmax": [0.99, 0.98], "local": [0.6, 0.7], "linear": [0.95, 0.93]}
    found = said(2048, FAST, trained(scores), task="lookup")
    assert found.choice == "linear" and "which reached lookup" in found.sentence
    assert marks(found, "lookup") == {"softmax": "reached", "local": "in part", "linear": "reached"}
    in_part = {"softmax": [0.6, 0.7], "local": [0.6, 0.7], "linear": [0.97, 0.93]}
    slow = timings("linear", lambda n: 0.1 * n**2)
    found = said(2048, FAST[:4], slow, trained(in_part), task="lookup")
    assert found.choice == "linear" and "fused softmax has not reached lookup" in found.sentence
    found = said(2048, FAST, trained({"softmax": [0.5], "local": [0.5]}), task="lookup")
    assert found.choice is None and "has reached lookup" in found.sentence
    own = trained({"softmax": [0.99], "local": [0.99]}, column="labelled_texts (a.csv)")
    found = said(2048, FAST, own, task="labelled_texts")
    assert found.case.task == "labelled_texts (a.csv)" and found.choice == "local"
    with pytest.raises(UnknownNameError, match=r"unknown trained column 'labeled_texts'\. Did you"):
        said(2048, FAST, own, task="labeled_texts")


def test_without_accuracy_as_good_is_within_two_percent_of_the_best():
    near = {"softmax": [2.0, 2.0], "local": [2.03, 2.03], "linear": [2.05, 2.05]}
    found = said(2048, FAST, trained(near, **BYTES), task="bytes")
    assert marks(found, "bytes") == {"softmax": "reached", "local": "reached", "linear": "in part"}
    assert found.choice == "local"
    grey = {"softmax": [6.1, 6.1], "local": [6.1, 6.1]}  # the best, and not above the lines
    assert said(2048, FAST, trained(grey, **BYTES), task="bytes").choice is None


def test_what_is_grey_in_every_column_is_not_chosen():
    grey = {"softmax": [0.99, 0.99], "local": [0.3, 0.99], "linear": [0.8, 0.7]}
    unlined = [one for one in trained(grey) if one.entry != LINES[0].label]
    for given, choice, words in (
        ([trained(grey)], "linear", "which reached none of lookup"),
        ([trained({**grey, "linear": [None, None]})], "softmax", "which reached lookup"),
        ([trained(grey), trained({"softmax": [2.0], "local": [2.01]}, **BYTES)], "local", "reached bytes"),
        ([unlined], "local", ""),  # nothing to compare with: not grey
    ):  # fmt: skip
        found = said(2048, FAST, *given)
        assert found.choice == choice and words in found.sentence
    assert said(2048, FAST, unlined, task="lookup").choice is None


def test_newer_rows_count_and_old_ones_are_left_out_and_said():
    assert said(2048, LOCAL, SLOW).choice == said(2048, SLOW, LOCAL).choice == "softmax"
    found = said(2048, LOCAL, [replace(one, source="of another day") for one in SLOW])
    assert found.choice == "local" and any("4 of local." in note for note in found.notes)
    newer = replace(LATER, versions=WHERE.versions | {"torch": "2.14.0"})
    found = said(2048, LOCAL, timings("softmax", lambda n: n, where=newer))
    assert found.choice == "softmax" and any("8 timings left out" in note for note in found.notes)


def test_timings_of_one_device_and_size_count_and_blocks_before_layers(monkeypatch):
    there = replace(WHERE, device="NVIDIA H100 80GB HBM3")
    elsewhere = [replace(one, provenance=there) for one in SLOW]
    found = said(2048, LOCAL, elsewhere)
    assert found.choice == "local" and any("4 timings left out" in note for note in found.notes)
    monkeypatch.setattr(recommend, "describe", lambda device: there.device)  # it is this machine
    assert said(2048, LOCAL, elsewhere).choice == "softmax"
    layers = [timings(n, lambda n: 0.1 * n, unit="layer") for n in ("linear", "gau", "flash")]
    assert said(2048, LOCAL, *layers).choice == "local"


def test_entries_have_the_options_that_were_measured():
    (groups,) = (e for e in QUESTIONS["fingerprint"].entries if e.mixer == "head_groups")
    entry = Entry(mixer="local", options={"window_size": 4})
    fast = timings(entry, lambda n: 0.4 * n)
    found = said(2048, timings(groups, lambda n: 0.5 * n), fast)
    assert [c.mechanism for c in found.ranked][:2] == ["local, window 4", groups.label]
    assert "local" not in {c.mechanism for c in found.ranked}
    newer = timings(Entry(mixer="local", title=entry.label), lambda n: 9e9, where=LATER)
    found = said(2048, fast, newer)  # of the same label
    assert found.choice == "softmax" and any("4 of local, window 4." in n for n in found.notes)


def test_measuring_fills_the_ledger_and_measures_nothing_twice(tmp_path, monkeypatch):
    few = Catalog("mixer", (MIXERS["softmax"], MIXERS["linear"], MIXERS["fnet"]))
    monkeypatch.setattr(recommend, "MIXERS", few)
    case = Case(length=128, causal=True)
    with Ledger(tmp_path / "ledger.sqlite") as ledger:
        _, *new = recommend.measure(case, ledger, seconds=0.01)
        found = {(row.mixer, row.setting["length"]) for row in new}
        assert found == {(name, n) for name in ("softmax", "linear") for n in (8, 32, 64, 128)}
        count = len(ledger.rows())
        recommend.measure(case, ledger, seconds=0.01)
        assert len(ledger.rows()) == count
        found = recommend.recommend(case, ledger.rows())
    assert {c.mechanism for c in found.ranked} == {"softmax", "linear"}
    assert all(c.ratio.measured and math.isfinite(c.ms.value) for c in found.ranked)
    assert list(found.excluded) == ["fnet"]
    with pytest.raises(OptionError, match="decode cannot be joined"):
        Case(length=5, decode=True, train=True)


def test_what_memory_excludes_is_not_chosen_and_what_is_not_measured_is_said():
    found = said(2048, LINEAR, LOCAL, memory=1.0)
    assert {"linear", "local", "softmax"} <= found.excluded.keys()
    assert found.choice != "softmax" and "cannot do this, for the reason below" in found.sentence
    assert any("Not held to the bound on memory" in note and "gau" in note for note in found.notes)
    assert not any("Not held" in note for note in said(2048, LINEAR, LOCAL).notes)
