"""A question in a terminal, or as a document in Markdown; and numbers as people read them."""

from collections.abc import Iterable

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.core import visible, visible_lines
from regard.lab.experiment.claims import said
from regard.lab.experiment.row import Row
from regard.lab.report.told import Told, told

Marked = tuple[str, str]  # text and mark
_STYLES = {"reached": "bold green", "not reached": "dim", "line": "dim"}


def terminal(rows: Iterable[Row]) -> RenderableType:
    """Headline, grid, claims and what is missing of every question, the newest first."""
    parts = list[RenderableType]()
    for question in told(rows)["questions"]:
        parts += [_text(f"{question['name']}: {question['headline']}", "bold"), Text("")]
        if question["rows"]:
            parts += [_grid(question), Text("")]
        parts += [_text(line) for claim in question["claims"] for line in claim_lines(claim)]
        old = ", ".join(f"{count} of {entry}" for entry, count in question["old"].items())
        left_out = (
            f"results of other sources, options, budgets, seeds, rates or shells left out: {old}"
        )
        notes = question["missing"] + [left_out] * bool(old)
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


def table(question: Told) -> tuple[list[str], list[list[Marked]]]:
    """Heads and lines of a question's results; each cell is its text and its mark, "line" for what is compared with."""
    ran = {name for row in question["rows"] for name in row["cells"]}
    trained = [one for one in question["columns"] if one["name"] in ran]
    timed = [one["name"] for one in question["columns"] if one["kind"] == "timed"]
    heads = ["entry", *(f"{one['name']}\n{one['metric'].replace('_', ' ')}" for one in trained)]
    for name in timed:
        heads += [f"{name}\ntokens/s", "peak\nmemory", "state"]
    lines = []
    if trained:
        chances = [(said(one["chance"]), "line") for one in trained]
        lines.append([("chance", "line"), *chances, *[("", "")] * 3 * len(timed)])
    for row in question["rows"]:
        line = [(name_of(row), "line" * row["line"])]
        line += [_cell(row["cells"].get(one["name"])) for one in trained]
        for name in timed:
            line += [(text, "") for text in _times(row["timed"].get(name))]
        lines.append(line)
    return heads, lines


def name_of(row: Told) -> str:
    return row["entry"] + " (causal)" * bool(row["causal"] and not row["line"])


def _cell(cell: Told | None) -> Marked:
    if not cell or cell["mean"] is None:
        return ("not run" if cell and cell["reason"] else "–"), "not reached"
    each = f" ({', '.join(map(said, cell['values']))})" * (1 < len(cell["values"]) <= 3)
    failed = f", {cell['failed']} of {cell['of']} failed" * bool(cell["failed"])
    return f"{said(cell['mean'])}{each}{failed}", cell["mark"]


def _times(at: Told | None) -> tuple[str, str, str]:
    if not at:
        return "–", "–", "–"
    state = "none" if at["state bytes"] is None else size(at["state bytes"])
    form = f", {at['form']}" * bool(at["form"])
    return size(at["tokens per second"], "") + form, size(at["peak bytes"]), state


def _grid(question: Told) -> Table:
    heads, lines = table(question)
    grid = Table(box=None, header_style="bold", pad_edge=False)
    for place, head in enumerate(heads):
        grid.add_column(_text(head), justify="right" if place else "left")
    for line in lines:
        grid.add_row(*(_text(text, _STYLES.get(mark, "")) for text, mark in line))
    return grid


def claim_lines(claim: Told) -> list[str]:
    lines = [
        f"{claim['verdict']}: {claim['text']} ({claim['source']}; written down at {claim['stated commit']})"
    ]
    if claim["withdrawn"]:
        return [*lines, f"    withdrawn: {claim['withdrawn']}"]
    for one in claim["bounds"]:
        beside = f" less {one['beside']}" if one["beside"] else ""
        asked = ", ".join(filter(None, (one["column"], one["measure"])))
        lines.append(
            f"    {one['of']}{beside} in {asked}: {span(one['interval'])}{'; ' + one['reason'] if one['reason'] else ''}"
        )
    if claim["needs"]:
        lines.append(f"    would tell: {claim['needs']}")
    return lines


def span(found: Told | None) -> str:
    """An interval in words."""
    if not found:
        return "not run"
    if found["low"] is None:
        return f"{said(found['mean'])} from one seed"
    items = f" and {found['items']:,} test items" if found["items"] else ""
    return f"{said(found['mean'])} ({said(found['low'])} to {said(found['high'])}, {found['seeds']} seeds{items})"


def size(number: float, unit: str = "B") -> str:
    """`size(2_500_000)` -> "2.5 MB"."""
    for power, prefix in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if number >= power:
            return f"{number / power:.3g} {prefix}{unit}".strip()
    return f"{number:.0f} {unit}".strip()


def _text(told_text: str, style: str = "") -> Text:
    """The text without what a terminal would obey, or rich would read as markup."""
    return Text(visible_lines(told_text), style=style)


def markdown(question: Told, picture: str | None) -> str:
    """What was asked, how the laws were met, and what came of it. picture: where one is, from the text."""
    about = question["about"] + "." * (question["about"][-1:] not in ("", ".", "?", "!"))
    lines = [f"# {question['name']}", "", about, "", f"**{question['headline']}.**", ""]
    kind = "A comparison."
    if question["kind"] == "screen":
        kind = "A screen: it asks of each entry alone, and says of none that it is better than another."
    lines += [f"{kind} {question['device']}; commit `{question['commit']}`.", ""]
    if picture:
        lines += [f"![Result of each entry]({picture})", ""]
    if question["claims"]:
        lines += ["## Claims", ""]
        for claim in question["claims"]:
            first, *more = claim_lines(claim)
            verdict, _, text = first.partition(": ")
            lines += [f"- **{verdict}**: {text}", *(f"  - {line.strip()}" for line in more)]
        lines.append("")
    heads, rows = table(question)
    lines += ["## Results", "", _row(head.replace("\n", ", ") for head in heads)]
    lines += [_row(["---"] * len(heads)), *(_row(map(_marked, row)) for row in rows), ""]
    lines += [
        "Mean over seeds, and what each came to. Grey in the page, here in brackets: does not pass chance, no mixing and the bag.",
        "",
    ]
    if question["limits"]:
        lines += ["## What it cannot say", "", *(f"- {limit}" for limit in question["limits"]), ""]
    by_number = sorted(question["laws"].items(), key=lambda law: int(law[0]))
    laws = [f"{law}. {how}" for law, how in by_number]
    lines += ["## How the laws of an experiment were met", "", *laws, ""]
    return "\n".join(visible(line).replace("<", "&lt;") for line in lines)


def _marked(cell: Marked) -> str:
    text, mark = cell
    if mark == "line":
        return f"*{text}*"
    return f"[{text}]" if mark == "not reached" and text.lstrip("-")[:1].isdigit() else text


def _row(texts: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in texts) + " |"
