"""Pictures for a README or a terminal's user, as Vega-Lite made with Altair; the page draws its own charts.

Data goes in as plain values, and no name goes into an expression. Labels are placed here, in pixels.
"""

import math
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt

from regard.core import OptionError
from regard.core.errors import visible
from regard.lab.arena.report import words
from regard.lab.arena.report.layout import Bubble, place_labels, spread_out
from regard.lab.arena.report.summary import LedgerSummary
from regard.lab.arena.results import Pass, Result
from regard.lab.data.files import whole

Chart = alt.LayerChart | alt.FacetChart  # what a layer of charts may become in Altair
COLOURS = (
    "#3f7fd1",
    "#e07b39",
    "#2a9d76",
    "#c9518f",
    "#8467c7",
    "#b3912a",
    "#3aa3b8",
    "#c8503c",
    "#7d9436",
    "#9c6b4f",
    "#5b6fd6",
    "#d08aa8",
)
BASELINE_COLOUR = "#848b94"
LARGEST_AREA = 1500.0  # square pixels, for the most memory in view
SMALLEST_AREA = 40.0
CROWD = 12  # from so many mechanisms on, charts are larger and bubbles smaller


def is_crowded(summary: LedgerSummary) -> bool:
    return len(summary.mechanisms) >= CROWD


def colours(summary: LedgerSummary) -> dict[str, str]:
    """Family -> colour; softmax is the grey that the others are seen against."""
    families = list(dict.fromkeys(summary.family.values()))
    others = [family for family in families if family != "softmax"]
    found = {family: COLOURS[i % len(COLOURS)] for i, family in enumerate(others)}
    return {family: found.get(family, BASELINE_COLOUR) for family in families}


def bubbles(summary: LedgerSummary, task: str, kind: Pass, length: int) -> Chart | None:
    """Quality against speed against memory on one task, for one pass at one length."""
    width, height = (1080, 620) if is_crowded(summary) else (330, 300)
    points = _points(summary, task, kind, length)
    if not points:
        return None
    first = summary.qualities(task)[0]
    x = _Axis([point["speed"] for point in points] + [0.8, 1.25], width, log=True, pad=0.12)
    y = _Axis([point["value"] for point in points], height, flip=first.better == "higher", pad=0.16)
    largest_area = LARGEST_AREA / (3 if is_crowded(summary) else 1)
    largest = max(point["bytes"] for point in points)
    for point in points:
        share = point["bytes"] / largest if largest else 0
        point["area"] = max(SMALLEST_AREA, largest_area * share)
    marks = [
        Bubble(
            x.pixel(p["speed"]), y.pixel(p["value"]), math.sqrt(p["area"] / math.pi), p["mechanism"]
        )
        for p in points
    ]
    for point, place in zip(points, place_labels(marks, width, height), strict=True):
        point["label_x"], point["label_y"] = round(place.x, 1), round(place.y, 1)

    at_x = alt.X(
        "speed:Q",
        scale=alt.Scale(type="log", domain=x.domain, nice=False),
        axis=alt.Axis(values=x.ticks, labelExpr="datum.value + '×'", grid=True),
        title="times as fast as softmax · faster →",
    )
    at_y = alt.Y(
        "value:Q",
        scale=alt.Scale(domain=y.domain, reverse=first.better == "lower", nice=False, zero=False),
        axis=alt.Axis(tickCount=5, format=".3~f"),
        title=f"{visible(words.metric(first.metric))} · better →",
    )
    level = (
        alt.Chart(alt.Data(values=[{"speed": 1}]))
        .mark_rule(strokeDash=[4, 4], color=BASELINE_COLOUR)
        .encode(x=at_x)
    )
    data = alt.Chart()
    circles = data.mark_circle(opacity=0.8, stroke="white", strokeWidth=0.6).encode(
        x=at_x,
        y=at_y,
        size=alt.Size("area:Q", scale=None, legend=None),
        color=alt.Color("colour:N", scale=None, legend=None),
    )
    labels = data.mark_text(fontSize=11).encode(
        x=alt.X("label_x:Q", scale=None),
        y=alt.Y("label_y:Q", scale=None),
        text="mechanism:N",
    )
    note = (
        alt.Chart(alt.Data(values=[{"text": f"area: peak memory, largest {words.size(largest)}"}]))
        .mark_text(align="right", baseline="bottom", fontSize=10, opacity=0.75)
        .encode(x=alt.value(width - 4), y=alt.value(height - 4), text="text:N")
    )
    return alt.layer(level, circles, labels, note, data=alt.Data(values=points)).properties(
        width=width, height=height
    )


def _points(summary: LedgerSummary, task: str, kind: Pass, length: int) -> list[dict[str, Any]]:
    palette = colours(summary)
    points = []
    for quality in summary.qualities(task):
        row = summary.timing(quality.mechanism, kind, length, summary.is_language(task))
        if row is not None:
            points.append(
                {
                    "mechanism": visible(quality.mechanism),
                    "colour": palette[summary.family[quality.mechanism]],
                    "speed": 1 / row.ratio,
                    "value": quality.mean,
                    "bytes": row.peak_bytes,
                }
            )
    return points


def scaling(
    summary: LedgerSummary, kind: Pass, quantity: str, shape: tuple[int, int]
) -> Chart | None:
    """Time ("time") or peak memory ("memory") of one pass against length, log-log."""
    width, height = shape
    palette = colours(summary)
    points: list[dict[str, Any]] = []
    for label in summary.mechanisms:
        for length in summary.lengths(kind):
            row = summary.timing(label, kind, length)
            value = row and (row.median_ms if quantity == "time" else row.peak_bytes / 1e6)
            if row and value and value > 0:
                points.append(
                    {
                        "mechanism": visible(label),
                        "colour": palette[summary.family[label]],
                        "length": length,
                        "y": value,
                        "low": row.low_ms,
                        "high": row.high_ms,
                    }
                )
    if not points:
        return None
    y = _Axis([point["y"] for point in points], height, log=True, flip=True, pad=0.05)
    lengths = sorted({point["length"] for point in points})
    at_x = alt.X(
        "length:Q",
        scale=alt.Scale(type="log", domain=[lengths[0] / 1.1, lengths[-1] * 1.1], nice=False),
        axis=alt.Axis(values=lengths, format="d", grid=False, labelOverlap=True),
        title="length, tokens",
    )
    at_y = alt.Y(
        "y:Q",
        scale=alt.Scale(type="log", domain=y.domain, nice=False),
        axis=alt.Axis(values=y.ticks, format="~g"),
        title="milliseconds" if quantity == "time" else "peak memory, MB",
    )
    colour = alt.Color("colour:N", scale=None, legend=None)
    data = alt.Chart()
    lines = data.mark_line(strokeWidth=1.8).encode(
        x=at_x, y=at_y, color=colour, detail="mechanism:N"
    )
    dots = data.mark_circle(size=34, opacity=1).encode(x=at_x, y=at_y, color=colour)
    layers = [lines, dots]
    if quantity == "time":
        layers.insert(
            0,
            data.mark_rule(opacity=0.35, strokeWidth=4).encode(
                x=at_x, y="low:Q", y2="high:Q", color=colour
            ),
        )
    ends = _ends([(p["mechanism"], p["length"], p["y"], p["colour"]) for p in points], y, height)
    whole = alt.layer(*layers, _end_labels(ends, width), data=alt.Data(values=points))
    return whole.properties(width=width, height=height)


def draw_picture(rows: Iterable[Result], path: Path) -> Path:
    summary = LedgerSummary(rows)
    charts = []
    for task in summary.tasks:
        for kind in summary.passes:
            length = summary.usual_length(kind)
            chart = bubbles(summary, task, kind, length) if length else None
            if chart:
                subtitle = f"{words.PASS_NAMES[kind]}, {length:,} tokens"
                title = alt.TitleParams(visible(task), subtitle=subtitle, anchor="start")
                charts.append(chart.properties(title=title))
                break
    if not charts:
        raise OptionError(
            "rows must hold a mechanism that was both trained and timed: there is nothing to draw"
        )
    beside = alt.vconcat if is_crowded(summary) else alt.hconcat
    return save(beside(*charts, spacing=28), path)


def save(chart: alt.HConcatChart | alt.VConcatChart, path: Path) -> Path:
    """Save as .png or .svg, on white. Raises OptionError for any other ending."""
    import vl_convert

    if path.suffix not in (".png", ".svg"):
        raise OptionError(f"path ({path}) must end in .png or .svg")
    spec = (
        chart.configure_view(stroke=None)
        .configure(background="white", padding=14)
        .to_json(indent=None)
    )
    with whole(path) as partial:
        if path.suffix == ".svg":
            partial.write_text(vl_convert.vegalite_to_svg(spec), encoding="utf-8")
        else:
            partial.write_bytes(vl_convert.vegalite_to_png(spec, scale=2))
    return path


def _ends(
    points: list[tuple[str, float, float, str]], y: "_Axis", height: float
) -> list[dict[str, Any]]:
    """A label at the right end of each line."""
    last: dict[str, tuple[float, float, str]] = {}
    for mechanism, x, value, colour in points:
        if mechanism not in last or x >= last[mechanism][0]:
            last[mechanism] = (x, value, colour)
    heights = spread_out([y.pixel(value) for _, value, _ in last.values()], 4, height - 4)
    return [
        {"text": mechanism, "at": round(at, 1), "colour": colour}
        for (mechanism, (_, _, colour)), at in zip(last.items(), heights, strict=True)
    ]


def _end_labels(ends: list[dict[str, Any]], width: float) -> alt.Chart:
    return (
        alt.Chart(alt.Data(values=ends))
        .mark_text(align="left", baseline="middle", fontSize=11)
        .encode(
            x=alt.value(width + 6),
            y=alt.Y("at:Q", scale=None),
            text="text:N",
            color=alt.Color("colour:N", scale=None, legend=None),
        )
    )


class _Axis:
    """A scale known here too, so that labels can be placed in its pixels. `flip`: large values at pixel 0."""

    def __init__(
        self,
        values: Sequence[float],
        pixels: float,
        *,
        log: bool = False,
        flip: bool = False,
        pad: float,
    ):
        self._log, self._flip, self._pixels = log, flip, pixels
        low, high = self._to(min(values)), self._to(max(values))
        room = pad * (high - low) or abs(high) * 0.1 or 1.0
        self._low, self._high = low - room, high + room
        self.domain = [math.exp(v) if log else v for v in (self._low, self._high)]
        self.ticks = _round_numbers(*self.domain) if log else []

    def _to(self, value: float) -> float:
        return math.log(value) if self._log else value

    def pixel(self, value: float) -> float:
        share = (self._to(value) - self._low) / (self._high - self._low)
        return self._pixels * (1 - share if self._flip else share)


def _round_numbers(low: float, high: float) -> list[float]:
    """1, 2, 5, 10, ... within the range; powers of ten alone where it is long."""
    decades = math.log10(high / low)
    steps = (1, 2, 5) if decades <= 2.5 else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    return [
        float(f"{step}e{power}")
        for power in powers
        for step in steps
        if low <= step * 10.0**power <= high
    ]
