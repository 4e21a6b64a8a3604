"""Pictures: what is gained over the bag against speed and memory, beside the grid."""

from collections.abc import Iterator, Sequence
from math import log10, pi, sqrt
from pathlib import Path
from typing import Any, NamedTuple

import altair as alt

from regard.core import OptionError, visible
from regard.core.files import whole
from regard.lab.report.terminal import name_of, size
from regard.lab.report.told import Told

WIDTH = 860
HEIGHT = 470
LARGEST, SMALLEST = 1400.0, 24.0  # areas of bubbles, in square pixels
BLUE = "#3f7fd1"
GREY = "#848b94"
CHARACTER = 6.3  # mean width of a letter in an 11-point label
LINE = 14.0
Point = tuple[float, float]  # in pixels


def draw(questions: Sequence[Told], path: Path) -> Path:
    """The newest question with both qualities and timings. Raises OptionError where none has, and for a wrong ending."""
    if path.suffix not in (".png", ".svg"):
        raise OptionError(f"path ({path}) must end in .png or .svg")
    for question in questions:
        if charts := [chart for chart in (trade(question), grid(question)) if chart is not None]:
            page = alt.vconcat(*charts, spacing=24).configure_view(stroke=None)
            page = page.configure(background="white", padding=14)
            with whole(path) as partial:
                page.save(partial, format=path.suffix[1:], scale_factor=2)
            return path
    raise OptionError("rows must hold what was trained: there is nothing to draw")


def trade(question: Told) -> Any:
    """Gain over the bag against tokens a second; area: peak memory. None where nothing has all three."""
    timed = next((one for one in question["columns"] if one["kind"] == "timed"), None)
    if not timed:
        return None
    rows = [
        row for row in question["rows"] if row["gain"] is not None and timed["name"] in row["timed"]
    ]
    if len(rows) < 2:
        return None
    times = [row["timed"][timed["name"]] for row in rows]
    most = max(1, *(at["peak bytes"] for at in times))
    speeds = [at["tokens per second"] for at in times]
    low = log10(min(speeds) / 1.3)
    high = log10(max(speeds) * 1.5)
    points = []
    bubbles = []
    for row, at, speed in zip(rows, times, speeds, strict=True):
        name = visible(row["entry"].partition(",")[0])
        area = max(SMALLEST, LARGEST * at["peak bytes"] / most)
        points.append({
            "name": name, "speed": speed, "gain": row["gain"], "area": area,
            "colour": GREY if row["line"] else BLUE, "fill": 0.25 if row["causal"] else 0.7,
        })  # fmt: skip
        x = (log10(speed) - low) / (high - low) * WIDTH
        y = (1.05 - row["gain"]) / 1.1 * HEIGHT
        bubbles.append(Bubble(x, y, sqrt(area / pi), name))
    for point, (x, y) in zip(points, place_labels(bubbles, WIDTH, HEIGHT), strict=True):
        point["label_x"], point["label_y"] = round(x, 1), round(y, 1)
    base = alt.Chart(alt.Data(values=points))
    circles = base.mark_circle(stroke=BLUE, strokeWidth=0.8).encode(
        x=alt.X("speed:Q", title="tokens a second", axis=alt.Axis(format="~s"), scale=alt.Scale(type="log", domain=[10**low, 10**high])),
        y=alt.Y("gain:Q", title=None, scale=alt.Scale(domain=[-0.05, 1.05])),
        size=alt.Size("area:Q", scale=None, legend=None),
        color=alt.Color("colour:N", scale=None, legend=None), opacity=alt.Opacity("fill:Q", scale=None, legend=None),
    )  # fmt: skip
    labels = base.mark_text(fontSize=11).encode(
        x=alt.X("label_x:Q", scale=None), y=alt.Y("label_y:Q", scale=None), text="name:N"
    )
    title = alt.TitleParams(
        f"Above a uniform mean of all tokens: mean of (score - bag) / (1 - bag) in {', '.join(question['gained'])}",
        subtitle=f"against tokens a second at {timed['length']:,} tokens, one block of width {timed['dim']}; area: peak memory, largest {size(most)}; pale: causal form",
        anchor="start",
    )
    return alt.layer(circles, labels).properties(width=WIDTH, height=HEIGHT, title=title)


def grid(question: Told) -> Any:
    """Scores by entry and column; grey where the three lines are not passed, and accuracy is deeper the higher it is."""
    columns = [one for one in question["columns"] if one["kind"] == "trained" and not one["later"]]
    metrics = dict.fromkeys(column["metric"].replace("_", " ") for column in columns)
    cells = []
    for row in question["rows"]:
        for column in columns:
            cell = row["cells"].get(column["name"])
            if not cell or cell["mean"] is None:
                continue
            grey = row["line"] or cell["mark"] == "not reached" or cell["bag"] is None
            cells.append(
                {
                    "entry": visible(name_of(row)),
                    "column": column["name"],
                    "text": f"{cell['mean']:.2f}",
                    "share": 0.0 if grey else cell["share"] or 0.0,
                    "grey": grey,
                }
            )
    if not cells:
        return None
    order = list(dict.fromkeys(cell["entry"] for cell in cells))
    base = alt.Chart(alt.Data(values=cells)).encode(
        x=alt.X(
            "column:N",
            sort=[one["name"] for one in columns],
            title=None,
            axis=alt.Axis(orient="top", labelAngle=0),
        ),
        y=alt.Y("entry:N", sort=order, title=None, axis=alt.Axis(labelLimit=420)),
    )
    tiles = base.mark_rect(stroke="white").encode(
        color=alt.condition(
            "datum.grey",
            alt.value("#eef0f3"),
            alt.Color(
                "share:Q", scale=alt.Scale(domain=[0, 1], range=["#eaf1fb", BLUE]), legend=None
            ),
        )
    )
    words = base.mark_text(fontSize=11).encode(
        text="text:N",
        color=alt.condition("datum.share > 0.75", alt.value("white"), alt.value("#1b1f24")),
    )
    return alt.layer(tiles, words).properties(
        width=120 * len(columns),
        height=18 * len(order),
        title=alt.TitleParams(f"{question['name']}: {', '.join(metrics)}", anchor="start"),
    )


class Bubble(NamedTuple):
    """A mark and its label, in pixels."""

    x: float
    y: float
    radius: float
    text: str

    @property
    def long(self) -> float:
        return len(self.text) * CHARACTER


def place_labels(bubbles: Sequence[Bubble], width: float, height: float) -> list[Point]:
    """The middle of each bubble's label, on the nearest line on which it meets no other, to the right or to the left."""
    placed = list[Point]()
    for bubble in bubbles:
        free = (
            (x, y)
            for x, y in _beside(bubble)
            if bubble.long / 2 <= x <= width - bubble.long / 2
            and 0 <= y <= height
            and not any(
                abs(x - other_x) < (bubble.long + other.long) / 2 and abs(y - other_y) < LINE
                for (other_x, other_y), other in zip(placed, bubbles, strict=False)
            )
        )
        placed.append(next(free, next(_beside(bubble))))
    return placed


def _beside(bubble: Bubble) -> Iterator[Point]:
    for line in range(60):
        y = bubble.y + LINE * (line // 2 + line % 2) * (-1) ** line
        for side in (1, -1):
            yield bubble.x + side * (bubble.radius + 4 + bubble.long / 2), y
