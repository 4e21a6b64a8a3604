"""A finding's figure, as SVG: means over seeds with their intervals, and each seed as a small dot."""

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from regard.core.errors import visible
from regard.lab.findings.finding import Entry
from regard.lab.findings.intervals import interval
from regard.lab.findings.results import Results

COLOURS = ("#1f4e79", "#c0504d", "#4f8f3a", "#8064a2", "#d08020", "#2a8a8a", "#777777", "#a03070")
PADDING = {"left": 30, "top": 10, "right": 10, "bottom": 10}  # pixels; left: a wider font's labels


def svg(results: Results) -> str:
    """One panel for each part and measure: entries as rows, or over the measure `x`. Empty where nothing was measured."""
    import vl_convert

    finding = results.finding
    rows = []
    for part in dict.fromkeys(entry.part for entry in finding.entries):
        entries = [entry for entry in finding.entries if entry.part == part]
        panels = [
            _panel(points, dots, name.replace("_", " "), finding.x)
            for name in results.measures(part)
            if name != finding.x
            for points, dots in [_points(results, entries, name)]
            if points
        ]
        if panels:
            title = alt.TitleParams(part, anchor="start") if part else alt.Undefined
            rows.append(alt.hconcat(*panels, title=title))
    if not rows:
        return ""
    chart = alt.vconcat(*rows).configure_view(stroke="#cccccc")
    spec = chart.configure(background="white", padding=PADDING).to_json(indent=None)
    return vl_convert.vegalite_to_svg(spec) + "\n"


Chart = alt.LayerChart | alt.FacetChart
Values = list[dict[str, Any]]


def _points(results: Results, entries: Sequence[Entry], measure: str) -> tuple[Values, Values]:
    """Means with the ends of their intervals, and the values of single seeds."""
    lines, x = list(dict.fromkeys(entry.line for entry in entries)), results.finding.x
    points, dots = [], []
    for entry in entries:
        by_seed = results.by_seed(entry.name, measure)
        found = interval(list(by_seed.values()))
        across = interval(list(results.by_seed(entry.name, x).values())) if x else None
        if found is None or (x and across is None):
            continue
        half = 0.0 if math.isinf(found.half) else found.half
        about: dict[str, Any] = {"entry": visible(entry.label), "line": visible(entry.line)}
        about["colour"] = COLOURS[lines.index(entry.line) % len(COLOURS)]
        if across is not None:
            about["x"] = _short(across.mean)
        ends = {"low": _short(found.mean - half), "high": _short(found.mean + half)}
        points.append(about | {"value": _short(found.mean)} | ends)
        dots += [about | {"value": _short(value)} for value in by_seed.values()]
    return points, dots


def _panel(points: Values, dots: Values, measure: str, x: str | None) -> Chart:
    colour = alt.Color("colour:N", scale=None)
    means, seeds = alt.Chart(alt.Data(values=points)), alt.Chart(alt.Data(values=dots))
    scale = alt.Scale(zero=False)
    encoded: dict[str, Any]
    if x is None:
        rows = alt.Y("entry:N", sort=None, title=None, axis=alt.Axis(labelLimit=300))
        encoded = {"x": alt.X("value:Q", title=measure, scale=scale), "y": rows, "color": colour}
        ends = encoded | {"x": alt.X("low:Q", title=measure, scale=scale), "x2": alt.X2("high:Q")}
        size: dict[str, Any] = {"width": 260, "height": alt.Step(17)}
    else:
        at_x = alt.X("x:Q", scale=alt.Scale(type="log"), title=x)
        encoded = {"x": at_x, "y": alt.Y("value:Q", title=measure, scale=scale), "color": colour}
        ends = encoded | {"y": alt.Y("low:Q", title=measure, scale=scale), "y2": alt.Y2("high:Q")}
        size = {"width": 460, "height": 320}
    layers = [
        means.mark_rule(strokeWidth=1.5).encode(**ends),
        seeds.mark_circle(size=14, opacity=0.5).encode(**encoded),
        means.mark_point(filled=True, size=55).encode(**encoded),
    ]
    if x is not None:
        joined = means.transform_filter("datum.line != ''").mark_line(strokeWidth=1)
        label = means.mark_text(align="left", dx=6, dy=-6, fontSize=10)
        layers += [
            joined.encode(**encoded, detail="line:N"),
            label.encode(**encoded, text="entry:N"),
        ]
    return alt.layer(*layers).properties(**size)


def _short(value: float) -> float:
    return float(f"{value:.6g}")
