"""The page: one HTML file that opens from disk, with the rows it was made from inside it.

It loads nothing: a content security policy forbids the network, scripts and styles are in the file.
"""

import json
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from html import escape
from importlib.resources import files
from typing import Any

import altair as alt

from regard.lab.arena.ledger import KINDS, canonical
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
from regard.lab.arena.report.summary import PASSES, Summary
from regard.lab.arena.report.table import crossings, parameters, standings
from regard.lab.arena.results import Provenance, Result, Trained

_POLICY = "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'; style-src 'unsafe-inline'; img-src data:"


def render(rows: Iterable[Result]) -> str:
    """The whole page."""
    summary = Summary(rows)
    charts = _charts(summary)
    sections = [
        _answer(summary),
        _trade(summary, charts),
        _scaling(summary, charts),
        _table(summary),
        _training(summary, charts),
        _not_run(summary),
        _origin(summary),
    ]
    specs = {c.id: {"wide": c.wide, "narrow": c.narrow, "turns": c.turns} for c in charts}
    lengths = {kind: summary.lengths(kind) for kind in summary.passes}
    return "\n".join(
        [
            '<!doctype html><html lang="en"><head><meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>Regard: which attention?</title><style>{_asset('page.css')}</style></head><body><main>",
            *filter(None, sections),
            "</main>",
            _data(
                "rows",
                [
                    {"kind": _kind(row), "result": json.loads(canonical(row))}
                    for row in summary.rows
                ],
            ),
            _data("charts", specs),
            _data("lengths", lengths),
            f"<script>{_library()}</script>" if charts else "",
            f'<script type="module">{_asset("page.js")}</script>',
            "</body></html>",
        ]
    )


def rows_in(page: str) -> list[Result]:
    """The rows that a page was made from."""
    start = page.index('<script type="application/json" id="rows">')
    text = page[page.index(">", start) + 1 : page.index("</script>", start)]
    return [_row(entry["kind"], entry["result"]) for entry in json.loads(text)]


def _row(kind: str, values: dict[str, Any]) -> Result:
    if "provenance" in values:
        values["provenance"] = Provenance(**values["provenance"])
    if "curve" in values:
        values["curve"] = [tuple(point) for point in values["curve"]]
    return KINDS[kind](**values)


def _kind(row: Result) -> str:
    return next(name for name, cls in KINDS.items() if type(row) is cls)


@dataclass(frozen=True, kw_only=True)
class _Chart:
    id: str
    group: str
    title: str
    wide: dict[str, Any]
    narrow: dict[str, Any]
    turns: bool = False  # follows the page's choice of pass and length


def _charts(summary: Summary) -> list[_Chart]:
    found: list[_Chart] = []

    def add(
        group: str,
        title: str,
        wide: Chart | None,
        narrow: Chart | None,
        turns=False,
    ):
        if wide is not None and narrow is not None:
            specs = {"wide": wide.to_dict(validate=False), "narrow": narrow.to_dict(validate=False)}
            for spec in specs.values():
                spec.pop("$schema", None)
                spec.pop("config", None)
            found.append(
                _Chart(id=f"chart-{len(found)}", group=group, title=title, turns=turns, **specs)
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


def _answer(summary: Summary) -> str:
    where = _devices(summary)
    parts = [
        '<p class="eyebrow">Regard · which attention should I use at my length, and what does it cost in quality?</p>',
        f"<h1>{escape(words.headline(summary))}</h1>",
    ]
    if where:
        parts.append(f"<p>Measured on {escape(where)}. {escape(_how(summary))}</p>")
    views = (
        [(kind, n) for kind in summary.passes for n in summary.lengths(kind)]
        if summary.tasks
        else []
    )
    if views:
        parts += [_controls(summary), *(_choices(summary, kind, length) for kind, length in views)]
        parts += [_by_length(summary, kind) for kind in summary.passes]
    certainty = words.certainty(summary)
    if certainty:
        parts.append(f'<p class="soft">{escape(certainty)}</p>')
    if summary.notes:
        items = "".join(f"<li>{escape(note)}</li>" for note in summary.notes)
        parts.append(f'<ul class="notes" aria-label="What is missing or left out">{items}</ul>')
    return "\n".join(parts)


def _how(summary: Summary) -> str:
    parts = []
    if summary.timed:
        parts.append(
            "Speed is taken on random input, beside PyTorch's fused softmax attention in the same run."
        )
    if summary.tasks:
        parts.append(
            "Quality is the test score of small models trained alike, at each task's own length."
        )
    return " ".join(parts)


def _controls(summary: Summary) -> str:
    first = summary.passes[0]
    kinds = "".join(
        f'<option value="{kind}">{escape(words.PASS_NAMES[kind])}</option>'
        for kind in summary.passes
    )
    chosen = summary.common_length(first)
    lengths = "".join(
        f'<option value="{n}"{" selected" if n == chosen else ""}>{n:,}</option>'
        for n in summary.lengths(first)
    )
    return (
        '<div class="controls">'
        f'<label>When I care about the<select name="kind" autocomplete="off">{kinds}</select></label>'
        f'<label>at a length of<select name="length" autocomplete="off">{lengths}</select> tokens</label></div>'
    )


def _choices(summary: Summary, kind, length: int) -> str:
    items = []
    for task in summary.tasks_for(kind):
        found = summary.decide(task, kind, length)
        if found is None:
            items.append(
                f"<li>{escape(task)}: nothing that keeps the quality was timed at this length.</li>"
            )
        else:
            told = escape(words.decision(found, summary))
            items.append(f"<li><b>{escape(found.choice)}</b> for {escape(task)}: {told}.</li>")
    if not items:
        items = ["<li>Decoding concerns language models, and none was trained.</li>"]
    first = (kind, length) == (summary.passes[0], summary.common_length(summary.passes[0]))
    return f'<ul class="choices" data-view="{kind} {length}"{"" if first else " hidden"}>{"".join(items)}</ul>'


def _by_length(summary: Summary, kind) -> str:
    lengths, body = summary.lengths(kind), []
    for task in summary.tasks_for(kind):
        cells = []
        for length in lengths:
            found = summary.decide(task, kind, length)
            if found is None:
                cells.append("<td>–</td>")
            else:
                cells.append(
                    f"<td>{escape(found.choice)} <small>{words.times(found.timed.ratio)}</small></td>"
                )
        body.append(f"<tr><th>{escape(task)}</th>{''.join(cells)}</tr>")
    if not body:
        return ""
    heads = "".join(f"<th>{n:,}</th>" for n in lengths)
    hidden = "" if kind == summary.passes[0] else " hidden"
    return (
        f'<div class="scroll" data-kind="{kind}"{hidden}><table><caption>The choice at every length, '
        f"{escape(words.PASS_NAMES[kind])}, with its speed against softmax</caption>"
        f"<thead><tr><th>task</th>{heads}</tr></thead><tbody>{''.join(body)}</tbody></table></div>"
    )


def _trade(summary: Summary, charts: list[_Chart]) -> str:
    figures = _figures(summary, charts, "trade")
    if not figures:
        return ""
    return (
        "<h2>Quality against speed against memory</h2>"
        "<p>Up is better, right is faster; the dashed line is fused softmax attention. The area of a bubble is peak "
        "memory in the pass and at the length chosen above. Point at a bubble for its figures.</p>"
        f"{_families(summary)}{figures}"
    )


def _scaling(summary: Summary, charts: list[_Chart]) -> str:
    figures = _figures(summary, charts, "scaling")
    if not figures:
        return ""
    names = [*(kind for kind in summary.passes), "memory"]
    titles: dict[str, str] = {kind: words.PASS_NAMES[kind] for kind in PASSES} | {
        "memory": "memory"
    }
    heads = "".join(f"<th>{escape(titles[name])}</th>" for name in names)
    body = "".join(
        f"<tr><th>{escape(label)}</th>"
        + "".join(
            f"<td>{escape(str(found[name])) if found.get(name) else '–'}</td>" for name in names
        )
        + "</tr>"
        for label, found in crossings(summary)
    )
    table = (
        '<h3 style="margin-top:28px">Where each overtakes softmax</h3>'
        '<p class="soft">The length, in tokens, from which it stays faster (or smaller) than softmax attention, '
        "read between the measured lengths on log-log scales.</p>"
        f'<div class="scroll"><table><thead><tr><th>mechanism</th>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )
    return (
        "<h2>How cost grows with length</h2>"
        "<p>Both axes are logarithmic, so a straight line is a power of the length. Bars are quartiles.</p>"
        f"{_families(summary)}{figures}{table if body else ''}"
    )


def _training(summary: Summary, charts: list[_Chart]) -> str:
    figures = _figures(summary, charts, "training")
    if not figures:
        return ""
    return f"<h2>Training curves</h2><p>Curves that still climb would have gained from a larger budget.</p>{figures}"


def _figures(summary: Summary, charts: list[_Chart], group: str) -> str:
    found = [
        f'<figure><h3>{escape(chart.title)}</h3><div id="{chart.id}" role="img" aria-label="{escape(chart.title)}"></div></figure>'
        for chart in charts
        if chart.group == group
    ]
    crowded = f" crowded {group}" if is_crowded(summary) else ""
    return f'<div class="charts{crowded}">{"".join(found)}</div>' if found else ""


def _families(summary: Summary) -> str:
    items = (
        f'<li><i style="background:{colour}"></i>{escape(family)}</li>'
        for family, colour in colours(summary).items()
    )
    return f'<ul class="families">{"".join(items)}</ul>'


def _table(summary: Summary) -> str:
    if not summary.mechanisms:
        return ""
    heads = [_head("mechanism"), _head("family")]
    best = {}
    for task in summary.tasks:
        first = summary.qualities(task)[0]
        best[task] = first.mechanism
        heads.append(
            _head(task, f"{words.metric(first.metric)}, {first.better} is better", number=True)
        )
    for kind in summary.passes:
        at = f"speed at {summary.common_length(kind):,}"
        heads += [
            _head(words.PASS_NAMES[kind], at, number=True),
            _head("median", kind, number=True),
        ]
        heads.append(_head("memory", kind, number=True))
    heads += [_head("parameters", number=True), _head("trained in", "all runs", number=True)]
    body = []
    for line in standings(summary):
        cells = [f"<td>{escape(line.mechanism)}</td>", f"<td>{escape(line.family)}</td>"]
        for task, quality in line.quality.items():
            mark = "best" if best[task] == line.mechanism else ""
            cells.append(_cell(quality.mean if quality else None, words.quality(quality), mark))
        for timed in line.timed.values():
            cells.append(
                _cell(
                    1 / timed.ratio if timed else None, words.times(timed.ratio) if timed else "–"
                )
            )
            cells.append(
                _cell(
                    timed.median_ms if timed else None,
                    words.milliseconds(timed.median_ms) if timed else "–",
                )
            )
            cells.append(
                _cell(
                    timed.peak_bytes if timed else None,
                    words.size(timed.peak_bytes) if timed else "–",
                )
            )
        cells.append(_cell(line.parameters[1] if line.parameters else None, parameters(line)))
        seconds = [
            run.seconds for quality in line.quality.values() if quality for run in quality.runs
        ]
        cells.append(
            _cell(sum(seconds) if seconds else None, f"{sum(seconds):,.0f} s" if seconds else "–")
        )
        body.append(f"<tr>{''.join(cells)}</tr>")
    return (
        "<h2>All figures</h2><p>Speeds are times as fast as fused softmax attention. Click a heading to sort.</p>"
        f'<div class="scroll"><table id="standings"><thead><tr>{"".join(heads)}</tr></thead>'
        f"<tbody>{''.join(body)}</tbody></table></div>"
    )


def _head(name: str, small: str = "", *, number: bool = False) -> str:
    told = f"<small>{escape(small)}</small>" if small else ""
    return f"<th{' class=number' if number else ''}><button>{escape(name)}{told}</button></th>"


def _cell(value: float | None, text: str, mark: str = "") -> str:
    return f'<td class="number {mark}" data-value="{"" if value is None else repr(value)}">{escape(text)}</td>'


def _not_run(summary: Summary) -> str:
    failed = [row for row in summary.checked if row.failed_law]
    if not summary.not_run and not failed:
        return ""
    body = [(row.mixer, row.subject or "anything", row.reason) for row in summary.not_run]
    body += [(row.mixer, "its laws", f"{row.failed_law}: {row.message}") for row in failed]
    lines = "".join(
        f'<tr><td>{escape(mixer)}</td><td>{escape(subject)}</td><td class="prose">{escape(reason)}</td></tr>'
        for mixer, subject, reason in body
    )
    return (
        '<h2>Not run, and why</h2><div class="scroll"><table id="not-run"><thead><tr><th>mechanism</th><th>on</th>'
        f"<th>because</th></tr></thead><tbody>{lines}</tbody></table></div>"
    )


def _origin(summary: Summary) -> str:
    groups: dict[tuple, list[str]] = defaultdict(list)
    data: dict[str, set[str]] = defaultdict(set)
    for row in summary.rows:
        where = getattr(row, "provenance", None)
        if where:
            versions = ", ".join(f"{name} {version}" for name, version in where.versions.items())
            groups[
                where.command, where.commit, where.device, where.threads, where.dtype, versions
            ].append(where.started)
        if isinstance(row, Trained):
            data[row.task].add(row.data_sha256)
    if not groups:
        return ""
    lines = []
    for (command, commit, device, threads, dtype, versions), started in groups.items():
        span = min(started) if min(started) == max(started) else f"{min(started)} – {max(started)}"
        lines.append(
            f'<tr><td class="prose"><code>{escape(command)}</code></td><td><code>{escape(commit)}</code></td>'
            f'<td class="prose">{escape(device)}; threads: {threads}; {escape(dtype)}</td>'
            f'<td class="prose">{escape(versions)}</td><td class="prose">{escape(span)}</td>'
            f'<td class="number">{len(started)}</td></tr>'
        )
    checked = [row.mixer for row in summary.checked if row.failed_law is None]
    parts = [
        "<h2>Where the numbers come from</h2>",
        '<div class="scroll"><table><thead><tr><th>command</th><th>commit</th><th>device</th><th>versions</th>'
        f"<th>started</th><th class=number>rows</th></tr></thead><tbody>{''.join(lines)}</tbody></table></div>",
    ]
    if summary.seeds:
        parts.append(f"<p>Seeds: {', '.join(map(str, summary.seeds))}.</p>")
    if checked:
        parts.append(
            f"<p>Kept all their laws before they were measured: {escape(words.joined(checked))}.</p>"
        )
    if data:
        sums = "".join(
            f"<tr><td>{escape(task)}</td><td><code>{escape(', '.join(sorted(found)))}</code></td></tr>"
            for task, found in sorted(data.items())
        )
        parts.append(
            '<div class="scroll"><table><caption>Data, by sha256 of its content</caption>'
            f"<tbody>{sums}</tbody></table></div>"
        )
    parts.append(
        '<p class="soft">Every row of the ledger is inside this file, as JSON in the element with id “rows”.</p>'
    )
    return "".join(parts)


def _devices(summary: Summary) -> str:
    timed = {row.provenance.device for row in summary.timed.values()}
    trained = {
        run.provenance.device for quality in summary.quality.values() for run in quality.runs
    }
    return words.joined(sorted(timed or trained))


def _data(name: str, value: Any) -> str:
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return f'<script type="application/json" id="{name}">{text}</script>'


@cache
def _asset(name: str) -> str:
    return files("regard.lab.arena.report").joinpath(name).read_text(encoding="utf-8")


@cache
def _library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script, which cannot end its own element."""
    import vl_convert

    version = ".".join(alt.SCHEMA_VERSION.removeprefix("v").split(".")[:2])
    script = vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;", vl_version=version)
    return script.replace("</script", "<\\/script").replace("<!--", "<\\!--")
