"""Places of labels, in pixels: beside their bubble, and out of each other's way."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

CHARACTER = 6.3  # mean width of a letter in an 11-point label
LINE = 14.0


class Bubble(NamedTuple):
    x: float
    y: float
    radius: float
    text: str

    @property
    def long(self) -> float:
        return len(self.text) * CHARACTER


class Label(NamedTuple):
    x: float  # of the middle of the text
    y: float


def place_labels(bubbles: Sequence[Bubble], width: float, height: float) -> list[Label]:
    """One label a bubble, on the nearest line on which it meets no other, to the right or to the left."""
    placed: list[tuple[Label, Bubble]] = []
    for bubble in bubbles:
        free = (
            label
            for label in _beside(bubble)
            if bubble.long / 2 <= label.x <= width - bubble.long / 2
            and 0 <= label.y <= height
            and not any(
                abs(label.x - other.x) < (bubble.long + theirs.long) / 2
                and abs(label.y - other.y) < LINE
                for other, theirs in placed
            )
        )
        placed.append((next(free, next(_beside(bubble))), bubble))
    return [label for label, _ in placed]


def _beside(bubble: Bubble) -> Iterator[Label]:
    for line in range(60):
        y = bubble.y + LINE * (line // 2 + line % 2) * (-1) ** line
        for side in (1, -1):
            yield Label(bubble.x + side * (bubble.radius + 4 + bubble.long / 2), y)
