"""The tables of docs/trust.md, from what was run last:

make test LAWS=docs/laws.json               every law on every mechanism
make faults                                 kills, damaged files, several writers, full disks, bad calls: docs/faults.json
"""

import json
from collections import Counter
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent
PARTS = {
    "kills": "Kills of saving and of training",
    "flips": "Flipped bytes",
    "mutants": "Damaged files of every format",
    "writers": "Several writers",
    "disk": "Full and read-only disks",
    "calls": "Calls with a likely wrong argument",
}
OUTCOMES = ("passed", "does not apply", "cannot judge")


def measured(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


def laws() -> str:
    """One row for each law over all mechanisms; below it, the worst error in each mechanism and law."""
    found = measured("laws")
    matrix: dict[str, dict[str, Any]] = found["matrix"]
    names = sorted({law for row in matrix.values() for law in row})
    lines = [
        _origin(found),
        f"| law | {' | '.join(OUTCOMES)} | comparisons | worst error of what is allowed | in |",
        "|---" * 7 + "|",
    ]
    for law in names:
        cells = {name: row[law] for name, row in matrix.items() if law in row}
        counts = Counter[str]()
        for cell in cells.values():
            counts.update({outcome: cell.get(outcome, 0) for outcome in OUTCOMES})
        worst = max(cells, key=lambda name: cells[name]["worst"])
        compared = sum(cell["comparisons"] for cell in cells.values())
        told = f"{_share(cells[worst]['worst'])} | `{worst}`" if compared else "- | -"
        of = " | ".join(f"{counts[outcome]}" for outcome in OUTCOMES)
        lines.append(f"| {law} | {of} | {compared:,} | {told} |")
    lines += ["", f"| mechanism | {' | '.join(names)} |", "|---" * (len(names) + 1) + "|"]
    for name, row in matrix.items():
        lines.append(f"| `{name}` | {' | '.join(_cell(row.get(law)) for law in names)} |")
    return "\n".join(lines)


def _cell(cell: dict[str, Any] | None) -> str:
    """The worst error, or the outcome where nothing was compared."""
    if cell is None or "passed" not in cell:
        return "?" if cell and "cannot judge" in cell else "-"
    return _share(cell["worst"]) if cell["comparisons"] else "yes"


def _share(error: float) -> str:
    return "<0.1%" if error < 0.001 else f"{error:.1%}"


def faults() -> str:
    """For each part: what was done, what came out as it must, what went wrong."""
    lines = []
    for part, found in measured("faults").items():
        lines += [f"### {PARTS[part]}", "", _origin(found)]
        lines += ["| what | count |", "|---|---|"]
        for kind, word in (("done", "tried"), ("held", "held"), ("wrong", "**wrong**")):
            lines += [f"| {word}: {what} | {count:,} |" for what, count in found[kind].items()]
        if not found["wrong"]:
            lines.append("| wrong | 0 |")
        lines += [f"| most: {what} | {value:,.3g} |" for what, value in found["worst"].items()]
        lines.append("")
    return "\n".join(lines).strip()


def _origin(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"Commit {found['commit']}, {found['date']}; {found['machine']}; {versions}.\n"
