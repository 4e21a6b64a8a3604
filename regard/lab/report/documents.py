"""A question as a document: Markdown that says what was asked, how the laws were met, and what came of it."""

from collections.abc import Iterable

from regard.core.errors import visible
from regard.lab.report.terminal import claim_lines, table
from regard.lab.report.told import Told


def markdown(question: Told) -> str:
    screen = (
        "A screen: it asks of each entry alone, and says of none that it is better than another."
    )
    about = question["about"] + "." * (question["about"][-1:] not in ("", ".", "?", "!"))
    lines = [f"# {question['name']}", "", about, "", f"**{question['headline']}.**", ""]
    kind = screen if question["kind"] == "screen" else "A comparison."
    lines += [f"{kind} {question['device']}; commit `{question['commit']}`.", ""]
    if question["claims"]:
        lines += ["## Claims", ""]
        for claim in question["claims"]:
            first, *more = claim_lines(claim)
            verdict, _, text = first.partition(": ")
            lines += [f"- **{verdict}**: {text}", *(f"  - {line.strip()}" for line in more)]
        lines.append("")
    heads, rows = table(question)
    lines += ["## Results", "", _line(head.replace("\n", ", ") for head in heads)]
    lines += [_line(["---"] * len(heads)), *(_line(map(_marked, row)) for row in rows), ""]
    lines += [
        "Mean over seeds, and what each came to. Grey in the page, here in brackets: does not pass chance, no mixing and the bag.",
        "",
    ]
    if question["limits"]:
        lines += ["## What it cannot say", "", *(f"- {limit}" for limit in question["limits"]), ""]
    laws = [f"{law}. {how}" for law, how in question["laws"].items()]
    lines += ["## How the laws of an experiment were met", "", *laws, ""]
    return "\n".join(visible(line).replace("<", "&lt;") for line in lines)


def _marked(cell: tuple[str, str]) -> str:
    text, mark = cell
    if mark == "line":
        return f"*{text}*"
    return f"[{text}]" if mark == "not reached" and text[0].isdigit() else text


def _line(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"
