"""A question as a document: Markdown that says what was asked, how the laws were met, and what came of it."""

from collections.abc import Mapping
from typing import Any

from regard.core.errors import visible
from regard.lab.report.terminal import claim_lines, size, value


def markdown(question: Mapping[str, Any]) -> str:
    trained = [
        one
        for one in question["columns"]
        if one["kind"] == "trained" and any(one["name"] in row["cells"] for row in question["rows"])
    ]
    timed = [one for one in question["columns"] if one["kind"] == "timed"]
    lines = [
        f"# {question['name']}",
        "",
        question["about"] + "." * (question["about"][-1:] not in ("", ".", "?", "!")),
        "",
        f"**{question['headline']}.**",
        "",
    ]
    kind = (
        "A screen: it asks of each entry alone, and says of none that it is better than another."
        if question["kind"] == "screen"
        else "A comparison."
    )
    lines += [
        f"{kind} {question['device']}; commit `{question['commit']}`.",
        "",
    ]
    if question["claims"]:
        lines += ["## Claims", ""]
        for claim in question["claims"]:
            first, *more = claim_lines(claim)
            lines += [
                f"- **{first.partition(': ')[0]}**: {first.partition(': ')[2]}",
                *(f"  - {line.strip()}" for line in more),
            ]
        lines.append("")
    heads = ["entry", *(f"{one['name']} ({one['metric'].replace('_', ' ')})" for one in trained)]
    heads += [
        head for one in timed for head in (f"tokens/s, {one['name']}", "peak memory", "state")
    ]
    lines += ["## Results", "", _line(heads), _line(["---"] * len(heads))]
    if trained:
        lines.append(
            _line(
                [
                    "*chance*",
                    *(value(one["chance"]) for one in trained),
                    *["" for _ in timed for _ in range(3)],
                ]
            )
        )
    for row in question["rows"]:
        lines.append(
            _line(
                [
                    _name(row),
                    *(_cell(row["cells"].get(one["name"])) for one in trained),
                    *_times(row, timed),
                ]
            )
        )
    lines += [
        "",
        "Mean over seeds, and what each came to. Grey in the page, here in brackets: does not pass chance, no mixing and the bag.",
        "",
    ]
    if question["limits"]:
        lines += ["## What it cannot say", "", *(f"- {limit}" for limit in question["limits"]), ""]
    lines += [
        "## How the laws of an experiment were met",
        "",
        *(f"{law}. {how}" for law, how in question["laws"].items()),
        "",
    ]
    return "\n".join(visible(line).replace("<", "&lt;") for line in lines)


def _name(row: Mapping[str, Any]) -> str:
    name = row["entry"] + (" (causal)" if row["causal"] and not row["line"] else "")
    return f"*{name}*" if row["line"] else name


def _cell(cell: Mapping[str, Any] | None) -> str:
    if cell is None or cell["mean"] is None:
        return "not run" if cell is not None and cell["reason"] else "–"
    each = (
        f" ({', '.join(value(one) for one in cell['values'])})"
        if 1 < len(cell["values"]) <= 3
        else ""
    )
    failed = f", {cell['failed']} of {cell['of']} failed" if cell["failed"] else ""
    shown = f"{value(cell['mean'])}{each}{failed}"
    return f"[{shown}]" if cell["mark"] == "not reached" else shown


def _times(row: Mapping[str, Any], timed: list[Mapping[str, Any]]) -> list[str]:
    cells = []
    for one in timed:
        at = row["timed"].get(one["name"])
        cells += (
            ["–"] * 3
            if at is None
            else [
                size(at["tokens per second"], ""),
                size(at["peak bytes"]),
                "none" if at["state bytes"] is None else size(at["state bytes"]),
            ]
        )
    return cells


def _line(cells: list[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
