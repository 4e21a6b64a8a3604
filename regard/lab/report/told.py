"""What a question came to, as plain data: computed once, printed by `--json`, and drawn by the page as it is."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from regard.lab.experiment.claims import interval, short
from regard.lab.experiment.results import Cell, Results, questions
from regard.lab.experiment.row import Row

Told = dict[str, Any]


def told(rows: Iterable[Row]) -> Told:
    """{"questions": [...]}: each as it was asked last, the newest first; `values` has one number for each of `seeds`."""
    return {"questions": [of_question(results) for results in questions(rows)]}


def of_question(results: Results) -> Told:
    asked = results.asked
    columns = dict.fromkeys([*results.trained, *results.columns])
    shown = dict.fromkeys([*results.lines, *results.labels])
    rows = [_row(results, label) for label in shown]
    ran = [row for cell in results.cells.values() for row in cell.rows]
    ran += results.timed.values()
    kept = ("name", "about", "kind", "seeds", "rates", "mark", "limits", "laws")
    return {name: results.config[name] for name in kept} | {
        "headline": headline(results),
        "commit": asked.provenance.commit,
        "asked": asked.provenance.started,
        "device": " and ".join(dict.fromkeys(row.provenance.device for row in ran or [asked])),
        "columns": [_column(results, name) for name in columns],
        "rows": [row for row in rows if row["cells"] or row["timed"] or row["breaks"]],
        "gained": results.gained,
        "claims": results.judged(),
        "missing": [*_missing(results)],
        "old": results.old,
    }


def _column(results: Results, name: str) -> Told:
    column = results.columns[name]
    if column["kind"] == "timed":
        setting = column["setting"]
        return setting | {"name": name, "kind": "timed", "pass": setting["kind"]}
    equal = {label: short(value) for label, value in results.at_equal_time(name).items()}
    return column | _lines(results, name, column["causal"]) | {"at equal time": equal}


def _lines(results: Results, column: str, causal: bool | None) -> dict[str, float | None]:
    return {name: short(value) for name, value in results.three_lines(column, causal).items()}


def _row(results: Results, label: str) -> Told:
    cells = {name: cell for name in results.trained if (cell := results.cells.get((label, name)))}
    ran = [row for cell in cells.values() for row in cell.rows]
    line = {"mixer": label, "options": {}, "source": next((row.source for row in ran), "")}
    entry = next((one for one in results.config["entries"] if one["label"] == label), line)
    speeds = {name: one for name in results.columns if (one := results.timed.get((label, name)))}
    law = results.laws.get(label)
    forms = [cell.causal for cell in cells.values()] + [row.causal for row in speeds.values()]
    causal = next(iter(forms), None)
    return {
        "entry": label,
        "line": label in results.lines,
        "mixer": entry["mixer"],
        "options": entry["options"],
        "source": entry["source"],
        "causal": causal,
        "gain": short(results.gain(label)),
        "parameters": max((row.parameters for row in ran), default=None),
        "breaks": law and law.reason,
        "cells": {
            name: _cell(results, cell)
            for name, cell in cells.items()
            if cell.values or cell.reason or cell.failed
        },
        "timed": {name: _timed(one, causal) for name, one in speeds.items()},
    }


def _cell(results: Results, cell: Cell) -> Told:
    lines = _lines(results, cell.column, cell.causal)
    best = cell.rows[0] if cell.rows else None
    predicted = None  # score of a perfect use of the pairs that the structure allows
    if cell.allowed is not None and lines["chance"] is not None:
        predicted = cell.allowed + (1 - cell.allowed) * lines["chance"]
    return lines | {
        "values": [short(value) for value in cell.values],
        "seeds": [row.seed for row in cell.rows],
        "mean": short(cell.mean),
        "interval": (found := interval(cell.by_seed())) and found.plain,
        "mark": results.mark(cell),
        "share": short(results.share(cell)),
        "causal": cell.causal,
        "rate": cell.rate,
        "rates": cell.rates,
        "steps": [row.steps for row in cell.rows],
        "seconds": short(sum(row.seconds for row in cell.tried)),
        "flops": best and best.flops,
        "parameters": best and best.parameters,
        "failed": len(cell.failed),
        "of": len(cell.failed) + len(cell.rows),
        "allowed": short(cell.allowed),
        "predicted": short(predicted),
        "curves": [row.curve for row in cell.rows],
        "reason": cell.reason,
    }


def _timed(row: Row, causal: bool | None) -> Told:
    """causal: the form that the row is named by; a timing of the other says so."""
    setting = row.setting
    values = row.values
    tokens = setting["batch"] * (1 if setting["kind"] == "decode" else setting["length"])
    return {
        "ms": short(values["ms"]),
        "of softmax": short(row.ratio),
        "tokens per second": short(1e3 * tokens / values["ms"]),
        "peak bytes": values["peak_bytes"],
        "state bytes": values.get("state_bytes"),
        "causal": row.causal,
        "form": "" if row.causal == causal else "causal" if row.causal else "any order",
        "impl": setting["impl"],
        "flops": row.flops,
    }


def _missing(results: Results) -> Iterator[str]:
    """What has not been run yet, in one sentence for each column."""
    for name in results.trained:
        absent = [c.entry for c in _entered(results, name) if not (c.rows or c.failed or c.reason)]
        if len(absent) > 3:
            yield f"{name}: {len(absent)} of {len(results.labels)} entries not run yet"
        elif absent:
            yield f"{name}: {', '.join(absent)} not run yet"


def _entered(results: Results, column: str) -> list[Cell]:
    """The cells of the entries."""
    return [cell for cell in results.in_column(column) if cell.entry in results.labels]


def headline(results: Results) -> str:
    """What a reader may take from it, in one sentence."""
    if words := Counter(one["verdict"] for one in results.judged()):
        return "; ".join(f"{n} of {words.total()} claims: {word}" for word, n in words.items())
    reached = []
    for name in results.trained:
        if not results.columns[name]["later"]:
            marks = list(filter(None, map(results.mark, _entered(results, name))))
            reached += [f"{name} {marks.count('reached')} of {len(marks)}"] * bool(marks)
    if not reached:
        return results.config["about"] or results.config["name"]
    return f"Reached within the steps given: {', '.join(reached)}"
