"""The table for a terminal, and numbers as people read them."""

from collections.abc import Iterable, Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.core.errors import visible_lines
from regard.lab.experiment.row import Row
from regard.lab.report.told import told

_STYLES = {"reached": "bold green", "in part": "", "not reached": "dim"}


def terminal(rows: Iterable[Row]) -> RenderableType:
    """Headline, grid, claims and what is missing of every question, the newest first."""
    parts: list[RenderableType] = []
    for question in told(rows)["questions"]:
        parts += [_text(f"{question['name']}: {question['headline']}", "bold"), Text("")]
        if question["rows"]:
            parts += [_grid(question), Text("")]
        parts += [_text(line) for claim in question["claims"] for line in claim_lines(claim)]
        old = ", ".join(f"{count} of {entry}" for entry, count in question["old"].items())
        notes = [*question["missing"], *([f"old results left out: {old}"] if old else [])]
        parts += [_text(f"! {note}", "yellow") for note in notes]
        if question["kind"] == "screen":
            parts.append(
                _text(
                    "A screen: each entry by itself, reached or not; grey cells do not pass chance, no mixing and the bag.",
                    "dim",
                )
            )
        parts.append(Text(""))
    return Group(*parts) if parts else Text("Nothing has been asked yet.")


def _grid(question: Mapping[str, Any]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("entry")
    trained = [one for one in question["columns"] if one["kind"] == "trained"]
    timed = [one for one in question["columns"] if one["kind"] == "timed"]
    for column in trained:
        table.add_column(
            _text(f"{column['name']}\n{column['metric'].replace('_', ' ')}"), justify="right"
        )
    for column in timed:
        table.add_column(_text(f"{column['name']}\ntokens/s"), justify="right")
        table.add_column("peak\nmemory", justify="right")
    if trained:
        table.add_row(
            _text("chance", "dim"), *(_text(value(one["chance"]), "dim") for one in trained)
        )
    for row in question["rows"]:
        cells = [_cell(row["cells"].get(column["name"])) for column in trained]
        for column in timed:
            one = row["timed"].get(column["name"])
            cells += [
                Text("–" if one is None else size(one["tokens per second"], "")),
                Text("–" if one is None else size(one["peak bytes"])),
            ]
        name = row["entry"] + (" (causal)" if row["causal"] and not row["line"] else "")
        table.add_row(_text(name, "dim" if row["line"] else ""), *cells)
    return table


def _cell(cell: Mapping[str, Any] | None) -> Text:
    if cell is None or cell["mean"] is None:
        return Text("not run" if cell is not None and cell["reason"] else "–", style="dim")
    failed = f" ({cell['failed']} of {cell['of']} failed)" if cell["failed"] else ""
    return Text(value(cell["mean"]) + failed, style=_STYLES.get(cell["mark"], ""))


def claim_lines(claim: Mapping[str, Any]) -> list[str]:
    lines = [
        f"{claim['verdict']}: {claim['text']} ({claim['source']}; written down at {claim['stated commit']})"
    ]
    if claim["withdrawn"]:
        return [*lines, f"    withdrawn: {claim['withdrawn']}"]
    for one in claim["bounds"]:
        beside = f" {'by' if one['ratio'] else 'less'} {one['beside']}" if one["beside"] else ""
        lines.append(
            f"    {one['of']}{beside} in {one['column']}: {span(one['interval'])}{'; ' + one['reason'] if one['reason'] else ''}"
        )
    if claim["needs"]:
        lines.append(f"    would tell: {claim['needs']}")
    return lines


def span(found: Mapping[str, Any] | None) -> str:
    """An interval in words."""
    if found is None:
        return "not run"
    if found["low"] is None:
        return f"{value(found['mean'])} from one seed"
    items = f" and {found['items']:,} test items" if found["items"] else ""
    return f"{value(found['mean'])} ({value(found['low'])} to {value(found['high'])}, {found['seeds']} seeds{items})"


def value(number: float | None) -> str:
    if number is None:
        return "–"
    return f"{number:.3f}" if abs(number) < 10 else f"{number:,.4g}"


def size(number: float | None, unit: str = "B") -> str:
    """`size(2_500_000)` -> "2.5 MB"."""
    if number is None:
        return "–"
    for power, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= power:
            return f"{number / power:.3g} {prefix}{unit}".strip()
    return f"{number:.0f} {unit}".strip()


def _text(told_text: str, style: str = "") -> Text:
    """Without what a terminal would obey, or rich would read as markup."""
    return Text(visible_lines(told_text), style=style)
