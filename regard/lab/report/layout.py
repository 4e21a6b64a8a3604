"""Places of labels, in pixels: beside their bubble or line, and out of each other's way."""

from collections.abc import Sequence
from typing import NamedTuple

CHARACTER = 6.3  # mean width of a letter in an 11-point label
LINE = 13.0


class Bubble(NamedTuple):
    x: float
    y: float
    radius: float
    text: str


class Label(NamedTuple):
    x: float  # of the middle of the text
    y: float


def place_labels(bubbles: Sequence[Bubble], width: float, height: float) -> list[Label]:
    """One label a bubble, at the least crowded of the places around it; small bubbles choose last."""
    obstacles = [(b.x - b.radius, b.y - b.radius, b.x + b.radius, b.y + b.radius) for b in bubbles]
    placed: dict[int, tuple[float, float, float, float]] = {}
    found: dict[int, Label] = {}
    for i in sorted(range(len(bubbles)), key=lambda i: -bubbles[i].radius):
        places = list(_around(bubbles[i]))

        def crowding(rank: int, places=places, i=i) -> float:
            box = _box(places[rank], bubbles[i].text)
            hidden = sum(_overlap(box, other) for other in placed.values()) * 3
            hidden += sum(_overlap(box, other) for j, other in enumerate(obstacles) if j != i)
            outside = _area(box) - _overlap(box, (0, 0, width, height))
            return hidden + 4 * outside + rank

        found[i] = places[min(range(len(places)), key=crowding)]
        placed[i] = _box(found[i], bubbles[i].text)
    return [found[i] for i in range(len(bubbles))]


def _around(bubble: Bubble):
    half = len(bubble.text) * CHARACTER / 2
    for distance in (4.0, 14.0, 26.0):
        beside, above = bubble.radius + distance + half, bubble.radius + distance + LINE / 2
        yield Label(bubble.x, bubble.y - above)
        yield Label(bubble.x + beside, bubble.y)
        yield Label(bubble.x - beside, bubble.y)
        yield Label(bubble.x, bubble.y + above)
        for side in (1, -1):
            yield Label(bubble.x + side * beside * 0.8, bubble.y - above * 0.8)
            yield Label(bubble.x + side * beside * 0.8, bubble.y + above * 0.8)


def _box(label: Label, text: str) -> tuple[float, float, float, float]:
    half = len(text) * CHARACTER / 2
    return label.x - half, label.y - LINE / 2, label.x + half, label.y + LINE / 2


def _area(box) -> float:
    return (box[2] - box[0]) * (box[3] - box[1])


def _overlap(a, b) -> float:
    return max(0.0, min(a[2], b[2]) - max(a[0], b[0])) * max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
