"""The page: one HTML file that opens from disk, with the rows it was made from inside it.

`page.html.j2` is the page. Jinja2 escapes every string; the JSON inside scripts is escaped by its filter `tojson`.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from typing import Any

import altair as alt
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from regard.lab.arena.ledger import canonical
from regard.lab.arena.report import words
from regard.lab.arena.report.charts import (
    Chart,
    bubble_shape,
    bubbles,
    colours,
    curves,
    is_crowded,
    line_shape,
    scaling,
)
from regard.lab.arena.report.summary import LedgerSummary
from regard.lab.arena.report.table import crossings, standings
from regard.lab.arena.results import Provenance, Result, Trained
from regard.lab.arena.rows import packed, unpacked


def render(rows: Iterable[Result]) -> str:
    """The whole page."""
    summary = LedgerSummary(rows)
    charts = _charts(summary)
    devices = {row.provenance.device for row in summary.timed.values()} or {
        run.provenance.device for quality in summary.quality.values() for run in quality.runs
    }
    refused = [(row.mixer, row.subject or "anything", row.reason) for row in summary.not_run]
    failed = [
        (row.mixer, "its laws", f"{row.failed_law}: {row.message}")
        for row in summary.checked
        if row.failed_law
    ]
    return _template().render(
        words=words,
        summary=summary,
        devices=words.joined(sorted(devices)) if devices else "",
        charts=charts,
        groups={chart.group for chart in charts},
        crowded=is_crowded(summary),
        colours=colours(summary),
        crossings=crossings(summary),
        standings=standings(summary),
        bests={task: summary.qualities(task)[0] for task in summary.tasks},
        not_run=refused + failed,
        origins=_origins(summary),
        lawful=[row.mixer for row in summary.checked if row.failed_law is None],
        data=_data(summary),
        rows=packed(summary.rows),
        specs={c.id: {"wide": c.wide, "narrow": c.narrow, "turns": c.turns} for c in charts},
        lengths={kind: summary.lengths(kind) for kind in summary.passes},
        style=Markup(_asset("page.css")),
        script=Markup(_asset("page.js")),
        library=_library() if charts else "",
    )


def rows_in(page: str) -> list[Result]:
    """The rows that a page was made from."""
    start = page.index('<script type="application/json" id="rows">')
    text = page[page.index(">", start) + 1 : page.index("</script>", start)]
    return unpacked(text)


@dataclass(frozen=True, kw_only=True)
class _Figure:
    id: str
    group: str
    title: str
    wide: dict[str, Any]
    narrow: dict[str, Any]
    turns: bool = False  # follows the page's choice of pass and length


def _charts(summary: LedgerSummary) -> list[_Figure]:
    found: list[_Figure] = []

    def add(group: str, title: str, wide: Chart | None, narrow: Chart | None, turns=False):
        if wide is not None and narrow is not None:
            specs = {"wide": wide.to_dict(validate=False), "narrow": narrow.to_dict(validate=False)}
            for spec in specs.values():
                spec.pop("$schema", None)
                spec.pop("config", None)
            found.append(
                _Figure(id=f"chart-{len(found)}", group=group, title=title, turns=turns, **specs)
            )

    wide, narrow = (bubble_shape(summary, narrow=small) for small in (False, True))
    for task in summary.tasks:
        first, second = (bubbles(summary, task, shape) for shape in (wide, narrow))
        add("trade", task, first, second, turns=True)
    wide, narrow = (line_shape(summary, narrow=small) for small in (False, True))
    for quantity, name in (("time", "Time"), ("memory", "Peak memory")):
        for kind in summary.passes:
            lines = (scaling(summary, kind, quantity, shape) for shape in (wide, narrow))
            add("scaling", f"{name}, {words.PASS_NAMES[kind]}", *lines)
    for task in summary.tasks:
        add("training", task, *(curves(summary, task, shape) for shape in (wide, narrow)))
    return found


def _origins(summary: LedgerSummary) -> list[tuple[Provenance, list[str]]]:
    """Where rows were measured, and when each of them started."""
    found: dict[str, tuple[Provenance, list[str]]] = {}
    for row in summary.rows:
        where = getattr(row, "provenance", None)
        if where:
            key = canonical(replace(where, started=""))
            found.setdefault(key, (where, []))[1].append(where.started)
    return list(found.values())


def _data(summary: LedgerSummary) -> dict[str, list[str]]:
    """Task -> checksums of the data that it was trained on."""
    found: dict[str, set[str]] = defaultdict(set)
    for row in summary.rows:
        if isinstance(row, Trained):
            found[row.task].add(row.data_sha256)
    return {task: sorted(sums) for task, sums in sorted(found.items())}


@cache
def _template():
    environment = Environment(
        loader=PackageLoader("regard.lab.arena", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    return environment.get_template("page.html.j2")


@cache
def _asset(name: str) -> str:
    return files("regard.lab.arena.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> Markup:
    """Vega, Vega-Lite and Vega-Embed as one script, which cannot end its own element."""
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    return Markup(script.replace("</script", "<\\/script").replace("<!--", "<\\!--"))
