"""The comparison as a table: `standings` is the plain data from which terminal, --json and page all draw."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from regard.core.errors import visible
from regard.lab.arena.report import words
from regard.lab.arena.report.crossing import Crossing, crossing
from regard.lab.arena.report.summary import LedgerSummary, Quality
from regard.lab.arena.results import Pass, Result, Timed


@dataclass(frozen=True, kw_only=True)
class Standing:
    """One mechanism's line: quality per task, and per pass the timing at the longest common length."""

    mechanism: str
    family: str
    quality: dict[str, Quality | None]
    timed: dict[Pass, Timed | None]
    parameters: tuple[float, float] | None  # fewest and most over the tasks

    @property
    def seconds(self) -> float | None:
        """Training time of all runs; None where nothing was trained."""
        runs = [run.seconds for quality in self.quality.values() if quality for run in quality.runs]
        return sum(runs) if runs else None

    @property
    def memory(self) -> Timed | None:
        """The timing whose peak is shown: the training step's, or else the forward pass's."""
        return self.timed.get("train") or self.timed.get("forward") or self.timed.get("decode")


def standings(summary: LedgerSummary) -> list[Standing]:
    lines = []
    for label in summary.mechanisms:
        found = {task: summary.quality.get((task, label)) for task in summary.tasks}
        sizes = [quality.parameters for quality in found.values() if quality]
        lines.append(
            Standing(
                mechanism=label,
                family=summary.family[label],
                quality=found,
                timed={
                    k: summary.timing(label, k, summary.usual_length(k)) for k in summary.passes
                },
                parameters=(min(sizes), max(sizes)) if sizes else None,
            )
        )
    return lines


def crossings(summary: LedgerSummary) -> list[tuple[str, dict[str, Crossing | None]]]:
    """Per mechanism: from which length on it is faster than softmax in each pass, and smaller."""
    lines = []
    for label in summary.mechanisms:
        if summary.is_baseline(label):
            continue
        found: dict[str, Crossing | None] = {
            kind: summary.overtaking(label, kind) for kind in summary.passes
        }
        of_memory: tuple[Pass, ...] = ("train", "forward")
        for kind in of_memory:
            if kind in summary.passes:
                found["memory"] = crossing(summary.memory_ratios(label, kind))
                break
        lines.append((label, found))
    return lines


def terminal(rows: Iterable[Result]) -> RenderableType:
    """The table for a terminal, with what was not run and why."""
    summary = LedgerSummary(rows)
    parts: list[RenderableType] = [_text(words.headline(summary), "bold"), Text("")]
    if summary.mechanisms:
        parts += [_table(summary), Text(_legend(summary), style="dim")]
    if summary.not_run:
        absent = Table(
            "mechanism", "not run on", "because", title="Not run", title_justify="left", box=None
        )
        for row in summary.not_run:
            absent.add_row(*map(_text, (row.mixer, row.subject or "anything", row.reason)))
        parts += [Text(""), absent]
    if notes := summary.notes + summary.missing:
        parts += [Text(""), *(_text(f"! {note}", "yellow") for note in notes)]
    return Group(*parts)


def _text(value: str, style: str = "") -> Text:
    """Without what a terminal would obey, or rich would read as markup."""
    return Text(visible(value), style=style)


def _table(summary: LedgerSummary) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False)
    table.add_column("mechanism", no_wrap=True)
    for task in summary.tasks:
        first = summary.qualities(task)[0]
        arrow = "↑" if first.better == "higher" else "↓"
        header = Text("\n").join([_text(task), _text(f"{words.metric(first.metric)} {arrow}")])
        table.add_column(header, justify="right")
    for kind in summary.passes:
        table.add_column(f"{kind}\nspeed @{summary.usual_length(kind)}", justify="right")
    if summary.passes:
        table.add_column("peak\nmemory", justify="right")
    table.add_column("parameters", justify="right")
    best = {task: summary.qualities(task)[0].mechanism for task in summary.tasks}
    for line in standings(summary):
        cells = [_text(line.mechanism)]
        cells += [
            Text(words.quality(quality), style="bold green" if best[task] == line.mechanism else "")
            for task, quality in line.quality.items()
        ]
        cells += [Text(words.times(timed.ratio) if timed else "–") for timed in line.timed.values()]
        if summary.passes:
            cells.append(Text(words.size(line.memory.peak_bytes) if line.memory else "–"))
        cells.append(Text(words.parameters(line.parameters)))
        table.add_row(*cells)
    return table


def _legend(summary: LedgerSummary) -> str:
    speed = (
        f"speed: {words.UNIT_NAMES[summary.unit]}, times as fast as fused softmax's beside it; memory: of a training step. "
        if summary.timed
        else ""
    )
    return speed + words.certainty(summary)


def plain(rows: Iterable[Result]) -> dict[str, Any]:
    """The same as data, for --json."""
    summary = LedgerSummary(rows)
    decisions = [
        found
        for kind in summary.passes
        for length in summary.lengths(kind)
        for task in summary.tasks_for(kind)
        if (found := summary.decide(task, kind, length))
    ]
    return {
        "headline": words.headline(summary),
        "unit": summary.unit,
        "mechanisms": [_plain_line(line) for line in standings(summary)],
        "choices": [
            {
                "task": found.task,
                "pass": found.kind,
                "length": found.length,
                "choice": found.choice,
                "time_ratio": found.timed.ratio,
                "quality": found.quality.mean,
                "best": found.best.mechanism,
                "best_quality": found.best.mean,
            }
            for found in decisions
        ],
        "overtakes_softmax_at": {
            label: {
                name: found
                and {
                    "length": found.at,
                    "between": found.between,
                    "measured_to": found.last,
                    "level": found.level,
                }
                for name, found in of.items()
            }
            for label, of in crossings(summary)
        },
        "not_run": [
            {"mixer": r.mixer, "subject": r.subject, "reason": r.reason} for r in summary.not_run
        ],
        "old": summary.old,
        "notes": summary.notes + summary.missing,
        "seeds": summary.seeds,
    }


def _plain_line(line: Standing) -> dict[str, Any]:
    return {
        "mechanism": line.mechanism,
        "family": line.family,
        "quality": {
            task: q
            and {
                "metric": q.metric,
                "better": q.better,
                "mean": q.mean,
                "values": [r.value for r in q.runs],
            }
            for task, q in line.quality.items()
        },
        "speed": {
            kind: t
            and {
                "length": t.length,
                "causal": t.causal,
                "time_ratio": t.ratio,
                "median_ms": t.median_ms,
                "low_ms": t.low_ms,
                "high_ms": t.high_ms,
                "baseline_ms": t.baseline_ms,
                "peak_bytes": t.peak_bytes,
            }
            for kind, t in line.timed.items()
        },
        "parameters": line.parameters,
    }
