"""The counts of docs/trust.md, and the pages of docs/trust/ behind them, from what was run last:

make test LAWS=docs/laws.json               every law on every mechanism
make faults                                 kills, damaged files, several writers, full disks, bad calls: docs/faults.json
"""

from collections.abc import Collection
from typing import Any

from speed import read, table

PARTS = {
    "kills": "Kills of saving and of training",
    "saves": "Kills of saving pages and folders of Hugging Face",
    "flips": "Flipped bytes",
    "mutants": "Damaged files of every format",
    "writers": "Several writers",
    "disk": "Full and read-only disks",
    "calls": "Calls with a likely wrong argument",
}
WITHIN = (
    "runs that were killed until they ended",
    "partial files that were left",
    "disks that were full at some write",
)
"""What is counted in other lines of its part too."""
OUTCOMES = ("passed", "does not apply", "cannot judge")


LAWS = """\
# Laws, one by one

Each mechanism is held against the [laws](../adding.md) with blocks so small that 13 tokens cross many borders, and at 1,103 tokens with the
blocks that users get. Its defaults are asked every law; a variant `reference`, `streaming`, `long`, and the laws of what its options change
(`tests/laws/catalogue.py`). "Worst error" is the largest error of all comparisons, as a part of what the law allows; a mechanism passes below
100 %. In the second table a percentage is the worst error, "yes" a law that compares no numbers, "-" a law that does not apply, "?" one that
cannot judge. Again: `make test LAWS=docs/laws.json`.
"""
FAULTS = """\
# Faults, one by one

Kills, flipped bytes, damaged files, two writers, full and read-only disks, and generated bad calls. Again: `make faults`.
"""


def counts() -> str:
    """One row for each part: how often it was tried, and how often something went wrong."""
    found = read("laws.json")
    cells = [pair for row in found["matrix"].values() for pair in row.items()]
    passed, *_, compared = _totals([cell for _, cell in cells])
    laws = len({law for law, _ in cells})
    what = f"{laws} laws on {len(found['matrix'])} mechanisms and their variants"
    often = f"{passed:,} times, with {compared:,} comparisons"
    rows = [(what, often, 0, "[laws](trust/laws.md)")]
    for part, one in read("faults.json").items():
        tried = sum(count for what, count in one["done"].items() if what not in WITHIN)
        wrong = sum(one["wrong"].values())
        rows.append((PARTS[part], f"{tried:,}", f"{wrong:,}", "[faults](trust/faults.md)"))
    head = ("what was run", "how often", "went wrong", "one by one")
    return f"{_origin(found)}\n{table(head, rows)}"


def _totals(cells: Collection[dict[str, Any]]) -> list[int]:
    """How often each outcome came, and last the number of comparisons."""
    return [sum(cell.get(what, 0) for cell in cells) for what in (*OUTCOMES, "comparisons")]


def laws() -> str:
    """One row for each law over all mechanisms; below it, the worst error in each mechanism and law."""
    found = read("laws.json")
    matrix: dict[str, dict[str, Any]] = found["matrix"]
    names = sorted({law for row in matrix.values() for law in row})
    rows = []
    for law in names:
        cells = {name: row[law] for name, row in matrix.items() if law in row}
        worst = max(cells, key=lambda name: cells[name]["worst"])
        *of, compared = _totals(cells.values())
        told = (_share(cells[worst]["worst"]), f"`{worst}`") if compared else ("-", "-")
        rows.append((law, *of, f"{compared:,}", *told))
    head = ("law", *OUTCOMES, "comparisons", "worst error of what is allowed", "in")
    every = ((f"`{name}`", *(_cell(row.get(law)) for law in names)) for name, row in matrix.items())
    tables = (table(head, rows), "", table(("mechanism", *names), every), "")
    return "\n".join([LAWS, _origin(found), *tables])


def _cell(cell: dict[str, Any] | None) -> str:
    """The worst error, or the outcome where nothing was compared."""
    if cell is None or "passed" not in cell:
        return "?" if cell and "cannot judge" in cell else "-"
    return _share(cell["worst"]) if cell["comparisons"] else "yes"


def _share(error: float) -> str:
    return "<0.1%" if error < 0.001 else f"{error:.1%}"


def faults() -> str:
    """For each part: what was done, what came out as it must, what went wrong."""
    lines = [FAULTS]
    for part, found in read("faults.json").items():
        lines += [f"## {PARTS[part]}", "", _origin(found)]
        rows = [
            (f"{word}: {what}", f"{count:,}")
            for kind, word in (("done", "tried"), ("held", "held"), ("wrong", "**wrong**"))
            for what, count in found[kind].items()
        ]
        rows += [("wrong", 0)] * (not found["wrong"])
        rows += [(f"most: {what}", f"{value:,.3g}") for what, value in found["worst"].items()]
        lines += [table(("what", "count"), rows), ""]
    return "\n".join(lines)


def _origin(found: dict[str, Any]) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in found["versions"].items())
    return f"Commit {found['commit']}, {found['date']}; {found['machine']}; {versions}.\n"


PAGES = {"trust/laws.md": laws, "trust/faults.md": faults}
"""Page -> what makes its text."""
