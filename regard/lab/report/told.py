"""What a question came to, as plain data: computed once, printed by `--json`, and drawn by the page as it is."""

import math
from collections.abc import Iterable
from typing import Any

from regard.lab.experiment.results import Cell, Judged, Results, factor, questions
from regard.lab.experiment.row import Row
from regard.lab.experiment.statistics import Interval, interval
from regard.mixers import MIXERS

CHANCE = "chance"


def told(rows: Iterable[Row]) -> dict[str, Any]:
    """{"questions": [...]}: each as it was asked last, the newest first; `values` has one number for each of `seeds`."""
    return {"questions": [of_question(results) for results in questions(rows)]}


def of_question(results: Results) -> dict[str, Any]:
    config, asked = results.config, results.asked
    trained = [name for name, column in results.columns.items() if column["kind"] == "trained"]
    timed = [name for name, column in results.columns.items() if column["kind"] == "timed"]
    shown = [*results.lines, *results.labels] if trained else results.labels
    return {
        "name": config["name"],
        "about": config["about"],
        "kind": config["kind"],
        "headline": headline(results),
        "commit": asked.provenance.commit,
        "asked": asked.provenance.started,
        "device": next(
            (row.provenance.device for cell in results.cells.values() for row in cell.rows),
            asked.provenance.device,
        ),
        "seeds": config["seeds"],
        "rates": config["rates"],
        "mark": config["mark"],
        "limits": config["limits"],
        "laws": config["laws"],
        "columns": [_column(results, name) for name in (*trained, *timed)],
        "rows": [
            row
            for label in shown
            if (row := _row(results, label, trained, timed))["cells"] or row["timed"]
        ],
        "claims": [_claim(results, one) for one in results.judged()],
        "missing": _missing(results, trained),
        "old": results.old,
    }


def _column(results: Results, name: str) -> dict[str, Any]:
    column = results.columns[name]
    if column["kind"] == "timed":
        setting = column["setting"]
        return setting | {"name": name, "kind": "timed", "pass": setting["kind"]}
    lines = results.three_lines(name, column["causal"])
    return {
        "name": name,
        "kind": "trained",
        **{
            key: column[key]
            for key in (
                "task",
                "metric",
                "better",
                "length",
                "causal",
                "later",
                "steps",
                "tokens",
                "batch",
                "shell",
            )
        },
        **_lines(results, lines),
        "at equal time": {
            label: _short(value) for label, value in results.at_equal_time(name).items()
        },
    }


def _lines(results: Results, lines: dict[str, float]) -> dict[str, float | None]:
    unmixed, bag = results.lines
    return {
        "chance": _short(lines.get(CHANCE)),
        "unmixed": _short(lines.get(unmixed)),
        "bag": _short(lines.get(bag)),
    }


def _row(results: Results, label: str, trained: list[str], timed: list[str]) -> dict[str, Any]:
    entry = next(
        (one for one in results.config["entries"] if one["label"] == label),
        {"mixer": label, "options": {}, "source": ""},
    )
    cells = {
        name: _cell(results, cell)
        for name in trained
        if (cell := results.cells.get((label, name))) is not None
    }
    speeds = {
        name: _timed(results, label, name) for name in timed if (label, name) in results.timed
    }
    law = results.laws.get(label)
    parameters = [
        row.parameters
        for name in trained
        if (cell := results.cells.get((label, name)))
        for row in cell.rows
    ]
    mixer = str(entry["mixer"])
    return {
        "entry": label,
        "line": label in results.lines,
        "mixer": mixer,
        "family": MIXERS[mixer].family if mixer in MIXERS else "",
        "options": entry["options"],
        "source": entry["source"],
        "causal": next((cell["causal"] for cell in cells.values()), None),
        "gain": _short(results.gain(label)),
        "parameters": max(parameters, default=None),
        "breaks": law.reason if law is not None else None,
        "cells": {
            name: cell
            for name, cell in cells.items()
            if cell["values"] or cell["reason"] or cell["failed"]
        },
        "timed": speeds,
        "old": results.old.get(label, 0),
    }


def _cell(results: Results, cell: Cell) -> dict[str, Any]:
    lines = results.three_lines(cell.column, cell.causal)
    found = interval(cell.by_seed())
    best = cell.rows[0] if cell.rows else None
    return {
        "column": cell.column,
        "values": [_short(value) for value in cell.values],
        "seeds": [row.seed for row in cell.rows if row.value is not None],
        "mean": _short(cell.mean),
        "interval": _interval(found),
        "mark": results.mark(cell),
        "causal": cell.causal,
        **_lines(results, lines),
        "rate": cell.rate,
        "rates": sorted({row.rate for row in cell.tried if row.rate is not None}),
        "steps": [row.steps for row in cell.rows],
        "seconds": _short(sum(row.seconds for row in cell.tried)),
        "flops": best.flops if best else None,
        "parameters": best.parameters if best else None,
        "failed": len(cell.failed),
        "of": len(cell.failed) + len(cell.rows),
        "allowed": _short(cell.allowed),
        "predicted": _short(_predicted(cell, lines.get(CHANCE))),
        "curves": [[list(point) for point in row.curve] for row in cell.rows],
        "reason": cell.reason,
    }


def _predicted(cell: Cell, chance: float | None) -> float | None:
    """Score of a perfect use of the pairs that the structure allows: c + (1 - c) chance."""
    if cell.allowed is None or chance is None:
        return None
    return cell.allowed + (1 - cell.allowed) * chance


def _timed(results: Results, label: str, name: str) -> dict[str, Any]:
    one = results.timed[label, name]
    return {
        "ms": _short(one.ms),
        "of softmax": _short(one.ratio),
        "tokens per second": _short(one.tokens_per_second),
        "peak bytes": one.peak_bytes,
        "state bytes": one.state_bytes,
        "causal": one.causal,
        "impl": one.impl,
        "flops": one.flops,
    }


def _claim(results: Results, judged: Judged) -> dict[str, Any]:
    claim = judged.claim
    return {
        "text": claim["text"],
        "source": claim["source"],
        "smallest": claim["smallest"],
        "verdict": judged.verdict,
        "withdrawn": claim["withdrawn"],
        "needs": judged.needs,
        "stated": judged.stated.provenance.started,
        "stated commit": judged.stated.provenance.commit,
        "bounds": [
            {
                "of": one.expected["of"],
                "beside": one.expected["beside"],
                "column": results.column(one.expected),
                "measure": one.expected["measure"],
                "ratio": one.expected["ratio"],
                "least": one.expected["least"],
                "most": one.expected["most"],
                "interval": _interval(one.interval, factors=one.expected["ratio"]),
                "verdict": one.verdict,
                "reason": one.reason,
            }
            for one in judged.bounds
        ],
    }


def _interval(found: Interval | None, *, factors: bool = False) -> dict[str, Any] | None:
    """Its ends are null where it is infinitely wide. factors: it is of logarithms."""
    if found is None:
        return None
    ends = (found.mean, found.low, found.high)
    mean, low, high = (_short(factor(one) if factors else one) for one in ends)
    if not math.isfinite(found.half):
        low = high = None
    return {
        "mean": mean,
        "low": low,
        "high": high,
        "seeds": found.seeds,
        "items": found.items,
    }


def _missing(results: Results, trained: list[str]) -> list[str]:
    """What has not been run yet, in one sentence for each column."""
    said = []
    for name in trained:
        absent = [
            label
            for label in results.labels
            if (cell := results.cells.get((label, name))) is not None
            and not cell.rows
            and not cell.failed
            and not cell.reason
        ]
        if absent:
            many = (
                f"{len(absent)} of {len(results.labels)} entries"
                if len(absent) > 3
                else ", ".join(absent)
            )
            said.append(f"{name}: {many} not run yet")
    return said


def headline(results: Results) -> str:
    """What a reader may take from it, in one sentence."""
    judged = results.judged()
    if judged:
        words = [one.verdict for one in judged]
        return "; ".join(
            f"{words.count(word)} of {len(words)} claims: {word}" for word in dict.fromkeys(words)
        )
    names = [
        name
        for name, one in results.columns.items()
        if one["kind"] == "trained" and not one["later"]
    ]
    marks = {
        label: [
            results.mark(cell) if (cell := results.cells.get((label, name))) else ""
            for name in names
        ]
        for label in results.labels
    }
    counted = {
        name: sum(found[place] == "reached" for found in marks.values())
        for place, name in enumerate(names)
    }
    known = {
        name: sum(bool(found[place]) for found in marks.values())
        for place, name in enumerate(names)
    }
    if not any(known.values()):
        return results.config["about"] or results.config["name"]
    told_of = ", ".join(f"{name} {counted[name]} of {known[name]}" for name in names if known[name])
    return f"Reached within the steps given: {told_of}"


def _short(value: float | None) -> float | None:
    return None if value is None or not math.isfinite(value) else float(f"{value:.5g}")
