"""A finding's page: Markdown with one SVG beside it, drawn from rows alone, so that `make docs` draws it again without training.

write(finding, rows, folder)    NAME.json, NAME.md, NAME.svg        pages(folder)    what the folder should hold
"""

import json
import math
from collections.abc import Iterable, Sequence
from pathlib import Path

from regard.core import StoredDataError
from regard.core.errors import visible
from regard.lab.arena.ledger import canonical
from regard.lab.arena.results import Tried
from regard.lab.arena.rows import read_row
from regard.lab.data.files import reported, whole
from regard.lab.findings.figure import svg
from regard.lab.findings.finding import Entry, Expected, Finding
from regard.lab.findings.intervals import Interval, Verdict, interval, number
from regard.lab.findings.results import Judged, Part, Results

FORMAT = 1
HEADINGS: dict[Verdict, str] = {
    "agrees": "Agrees with what was published",
    "disagrees": "Disagrees",
    "withdrawn": "Withdrawn",
    "cannot tell": "Cannot be told here",
    "not run": "Not run yet",
}


def write(finding: Finding, rows: Iterable[Tried], folder: Path) -> Path:
    """NAME.json, NAME.md and NAME.svg in the folder. Returns the page's path; PathError where it cannot be written."""
    results = Results(finding, rows)
    known = trivial_baselines(results)
    path = folder / f"{finding.name}.json"
    with reported(folder, "made"):
        folder.mkdir(parents=True, exist_ok=True)
    lines = ",\n".join(canonical(row) for row in results.tried)
    about = f'"format":{FORMAT},"finding":"{finding.name}","baselines":{canonical(known)}'
    if results.old:
        about += f',"old":{canonical(results.old)}'
    _put(path, f'{{{about},"rows":[\n{lines}\n]}}\n')
    for name, text in _drawn(stored(finding, path)).items():
        _put(folder / name, text)
    return folder / f"{finding.name}.md"


def _put(path: Path, text: str) -> None:
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")


def trivial_baselines(results: Results) -> dict[str, float]:
    """Entry -> the metric, on the same test split, of what needs no model. Loads the tasks of all entries with rows."""
    found: dict[str, float] = {}
    known: dict[str, float] = {}
    for entry in results.finding.entries:
        if entry.run is None or not results.by_seed(entry.name, None):
            continue
        task = entry.run().task
        if repr(task) not in known:
            known[repr(task)] = float(task.trivial_baseline())
        found[entry.name] = known[repr(task)]
    return found


def stored(finding: Finding, path: Path) -> Results:
    """The results in a NAME.json. Raises StoredDataError where it is damaged, PathError where it cannot be read."""
    return Results(finding, *_read(path))


def read(path: Path) -> list[Tried]:
    """The rows of a NAME.json. Raises StoredDataError where it is damaged, PathError where it cannot be read."""
    return _read(path)[0]


def _read(path: Path) -> tuple[list[Tried], dict[str, float], dict[str, int]]:
    with reported(path, "read"):
        text = path.read_text(encoding="utf-8", errors="replace")
    try:
        content = json.loads(text)
        if not isinstance(content, dict) or content.get("format") != FORMAT:
            raise ValueError(f"it is not of format {FORMAT}")
        rows = [read_row("tried", values) for values in content.get("rows", [])]
        baselines = {name: float(value) for name, value in content.get("baselines", {}).items()}
        old = {name: int(value) for name, value in content.get("old", {}).items()}
    except (ValueError, TypeError, RecursionError) as error:
        raise StoredDataError(f"{path} holds no finding: {error}.") from error
    return [row for row in rows if isinstance(row, Tried)], baselines, old


def pages(folder: Path, findings: Iterable[Finding]) -> dict[Path, str]:
    """Every generated file of the folder and its text: from each NAME.json a page and a figure, and the index."""
    made: dict[Path, str] = {}
    index = []
    for finding in findings:
        path = folder / f"{finding.name}.json"
        results = stored(finding, path) if path.exists() else Results(finding, [])
        if path.exists():
            made |= {folder / name: text for name, text in _drawn(results).items()}
        index.append(_index_line(results, path.exists()))
    lines = ["# Findings", "", _ABOUT, "", "| suite | question | what came out |", "|---|---|---|"]
    made[folder / "README.md"] = "\n".join([*lines, *index]) + "\n"
    return made


_ABOUT = (
    "Published claims, each put to the test by one command, `regard arena NAME`. A verdict follows from the intervals "
    "of the page, and is written by nobody: *agrees* where the interval lies wholly within what the claim says, "
    "*disagrees* where it lies wholly outside, *cannot tell* otherwise, and *not run* where what it compares was not. "
    "A verdict is withheld, with its reason, where a condition of the claim was not reached or no model compared beats the task's "
    "trivial baseline. What was not seen is not refuted while the models still learn: a verdict of absence is withheld, too, where "
    "it would be another if each model gained once more what it gained in the second half of its training. One thing is written by "
    "hand: *withdrawn*, where the comparison was found to be unfair, with the number that shows it."
)


def _index_line(results: Results, exists: bool) -> str:
    finding, judged = results.finding, results.judged()
    if not exists:
        told, name = "not run yet", finding.name
    else:
        counts = {word: sum(one.verdict == word for one in judged) for word in HEADINGS}
        told = ", ".join(
            f"{count} {word if count == 1 else word.removesuffix('s')}"
            for word, count in counts.items()
            if count
        )
        told, name = f"of {len(judged)} claims {told}", f"[{finding.name}]({finding.name}.md)"
    return f"| {name} | {finding.about} | {told} |"


def summary(results: Results) -> list[dict[str, str]]:
    """One row for each claim, with its verdict."""
    return [{"claim": one.claim.text, "verdict": one.verdict} for one in results.judged()]


def _drawn(results: Results) -> dict[str, str]:
    """File name -> text: the page and its figure."""
    name = results.finding.name
    figure = svg(results)
    made = {f"{name}.md": markdown(results, bool(figure))}
    return made | ({f"{name}.svg": figure} if figure else {})


def markdown(results: Results, figure: bool) -> str:
    finding, judged = results.finding, results.judged()
    lines = [f"# {finding.name.replace('_', ' ')}", "", finding.about, ""]
    if figure:
        lines += [f"![{finding.about}]({finding.name}.svg)", ""]
    for word, heading in HEADINGS.items():
        found = [one for one in judged if one.verdict == word]
        if found:
            lines += [f"## {heading}", ""]
            for one in found:
                lines += _claim_lines(one, results)
            lines.append("")
    lines += ["## Numbers", "", _WHAT, ""]
    for part in dict.fromkeys(entry.part for entry in finding.entries):
        lines += [*([f"### {part}", ""] if part else []), *_table(results, part), ""]
        lines += _baseline_lines(results, part)
    lines += _refusals(results)
    if results.old:
        told = ", ".join(f"{count} of `{visible(name)}`" for name, count in results.old.items())
        lines += [f"Old rows left out, of another source, configuration or version: {told}.", ""]
    lines += ["## How", "", *([finding.method, ""] if finding.method else []), *_origin(results)]
    lines += ["## What this cannot tell", "", *(f"- {limit}" for limit in _limits(results)), ""]
    return "\n".join(lines)


_WHAT = (
    "Means over seeds of the test split at the best validation checkpoint, with Student's interval at 95 %; differences "
    "are paired by seed. A seed draws the first weights and the order of batches; the data are the same. Seconds are the clock's, "
    "whatever else the machine did meanwhile."
)


def _claim_lines(one: Judged, results: Results) -> list[str]:
    lines = [f"- **{one.claim.text}** ({one.claim.source})"]
    for part in one.parts:
        expected, found = part.expected, part.interval
        told = f"{part.verdict}{_why(part)}"
        if one.claim.withdrawn and part.reason is None:
            told = "withdrawn"
        measure = expected.measure or _metric(results, expected.of).replace("_", " ")
        joint = " by " if expected.ratio else " less "
        names = joint.join(f"`{name}`" for name in (expected.of, expected.beside) if name)
        needs = _needs(expected)
        lines.append(f"  - {names}, {measure}: {_interval(found, expected.ratio)}; {needs}: {told}")
    if one.claim.withdrawn:
        lines.append(f"  - *withdrawn: {one.claim.withdrawn}*")
    return lines


def _why(part: Part) -> str:
    if part.reason is None:
        return ""
    return f"{' at this budget' if part.verdict == 'cannot tell' else ''}: {part.reason}"


def _metric(results: Results, entry: str) -> str:
    return next((row.metric for row in results.rows[entry] if row.metric), "the task's metric")


def _needs(expected: Expected) -> str:
    least, most = expected.least, expected.most
    if math.isinf(most):
        return f"it should be above {number(least)}"
    if math.isinf(least) or (expected.ratio and least <= 0):
        return f"it should be below {number(most)}"
    return f"it should lie between {number(least)} and {number(most)}"


def _interval(found: Interval | None, ratio: bool) -> str:
    if found is None:
        return "not measured"
    scale = math.exp if ratio else float
    mean = number(scale(found.mean))
    if math.isinf(found.half):
        return f"{mean} (one seed)"
    low, high = number(scale(found.low)), number(scale(found.high))
    return f"{mean} ({low} to {high}, {found.seeds} seeds)"


def _table(results: Results, part: str) -> list[str]:
    measures = results.measures(part)
    facts = ("seeds", "learning rate", "parameters", "steps", "seconds")
    columns = ["entry", *(name.replace("_", " ") for name in measures), *facts]
    lines = [f"| {' | '.join(columns)} |", "|---" * len(columns) + "|"]
    for entry in results.finding.entries:
        if entry.part == part:
            lines.append(f"| {' | '.join(_cells(results, entry, measures))} |")
    return lines


def _baseline_lines(results: Results, part: str) -> list[str]:
    found: dict[str, None] = {}
    for entry in results.finding.entries:
        if entry.part == part and entry.name in results.baselines and entry.run:
            answers = entry.run().task.baseline
            metric = _metric(results, entry.name).replace("_", " ")
            found[f"{metric} {number(results.baselines[entry.name])} ({answers})"] = None
    return [f"Without a model: {', '.join(found)}.", ""] if found else []


def _cells(results: Results, entry: Entry, measures: Sequence[str]) -> list[str]:
    rows = [row for row in results.rows[entry.name] if row.reason is None]
    cells = [visible(entry.label)]
    for measure in measures:
        found = interval(list(results.by_seed(entry.name, measure).values()))
        cells.append("-" if found is None else _cell(found))
    if not rows:
        return [*cells, "not run", *["-"] * 4]
    last = rows[-1]
    rate = "-" if last.rate is None else f"{last.rate:g}"
    seconds = sum(row.seconds for row in rows) / len(rows)
    counts = [f"{last.parameters:,}", f"{last.steps:,}"] if last.steps else ["-", "-"]
    return [*cells, str(len({row.seed for row in rows})), rate, *counts, f"{seconds:.0f}"]


def _cell(found: Interval) -> str:
    if math.isinf(found.half):
        return number(found.mean)
    return f"{number(found.mean)} ± {number(found.half)}"


def _refusals(results: Results) -> list[str]:
    lines = []
    for entry in results.finding.entries:
        rows = [row for row in results.rows[entry.name] if row.reason]
        for reason in dict.fromkeys(row.reason for row in rows):
            seeds = ", ".join(str(row.seed) for row in rows if row.reason == reason)
            lines.append(f"- `{entry.name}`, seed {seeds}: {visible(reason or '')}")
    return ["Without a result:", "", *lines, ""] if lines else []


def _origin(results: Results) -> list[str]:
    """One line for each commit, machine and command among the rows."""
    found: dict[str, list[Tried]] = {}
    for row in results.tried:
        about = row.provenance
        versions = ", ".join(f"{name} {version}" for name, version in about.versions.items())
        said = f"`{about.command}` at commit {about.commit}; {about.device}; {versions}"
        found.setdefault(said, []).append(row)
    lines = [
        f"- {visible(said)}. {len(rows)} rows, seeds {', '.join(map(str, sorted({r.seed for r in rows})))}, "
        f"{sum(row.seconds for row in rows) / 60:.1f} minutes of training; begun {min(r.provenance.started for r in rows)}."
        for said, rows in found.items()
    ]
    return [*lines, ""]


def _limits(results: Results) -> list[str]:
    finding = results.finding
    said = list(finding.limits)
    single = [
        entry.name
        for entry in finding.entries
        if len({row.seed for row in results.rows[entry.name] if not row.reason}) == 1
    ]
    if single:
        names = ", ".join(f"`{name}`" for name in single)
        said.append(f"One seed, and so no interval, in this run: {names}.")
    return said
