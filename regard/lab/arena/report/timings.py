"""The picture of a benchmark: time and memory against length, one row for each pass, type and device."""

from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path

import altair as alt

from regard.core import OptionError
from regard.lab.arena.report import words
from regard.lab.arena.report.charts import save, scaling
from regard.lab.arena.report.summary import LedgerSummary
from regard.lab.arena.results import Pass, Timed


def draw_timings(rows: Iterable[Timed], path: Path) -> Path:
    """Raises OptionError if `path` ends in neither .png nor .svg, or there is nothing to draw."""
    groups: dict[tuple[Pass, str, str], list[Timed]] = defaultdict(list)
    for row in rows:
        groups[row.kind, row.provenance.dtype, row.provenance.device].append(row)
    lines = []
    for (kind, dtype, device), of_group in groups.items():
        summary = LedgerSummary(of_group)
        charts = [scaling(summary, kind, quantity, (330, 300)) for quantity in ("time", "memory")]
        title = alt.TitleParams(words.PASS_NAMES[kind], subtitle=f"{dtype}, {device}")
        lines.append(
            alt.hconcat(*(chart for chart in charts if chart), spacing=110).properties(title=title)
        )
    if not lines:
        raise OptionError("rows must hold a timing: there is nothing to draw")
    return save(alt.vconcat(*lines, spacing=30), path)
