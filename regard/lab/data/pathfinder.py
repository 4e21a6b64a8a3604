"""Pathfinder pictures (after Linsley et al. 2018, arXiv 1805.08315, and arXiv 2011.04006, by a simpler rule).

    two targets     dashed paths that start one seed distance apart and grow by turns to contour_length paddles
    next paddle     begins a gap behind the last one, turned by an angle with density cos^2; what comes nearer than the
                    clearance to another paddle is drawn again, and a picture in which a target is stuck is begun anew
    distractors     paths of a third of that length, wherever there is room for them
    two discs       on the start of a random target, and on the far end of the same (label 1) or of the other (0)

Paddles are places in the plane, and are drawn with soft edges; all have one contrast. The published program places them on pixels,
with contrasts that differ: pictures of the two must not be compared. Many pictures grow in step; more of a seed begin
with the same ones.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.generated import bar
from regard.lab.data.records import Integers

Floats = NDArray[np.floating]
Bytes = NDArray[np.uint8]
CHUNK = 200  # pictures of 32 x 32 pixels; fewer of larger ones
_DRAWS = 24  # places from which a paddle takes the first that is free
_TRIES = 2  # for each distractor
_PATIENCE = 50  # rounds without one picture


class Drawing(NamedTuple):
    """Lengths in pixels; contour and distractor lengths in paddles. `clearance` is between the middles of strokes."""

    size: int
    contour_length: int
    seed_distance: float
    disc: float  # radius
    paddle: float
    thickness: float
    gap: float
    clearance: float
    room: int  # paddles of all distractors together


_SIZES = {
    32: (7, 1.5, 2, 0.8, 2, 3.5, 20),
    64: (12, 2.5, 5, 1.0, 2.5, 4.0, 22),
    128: (20, 3.0, 5, 1.5, 5, 5.5, 35),
}


def published(size: int, contour_length: int) -> Drawing:
    """The Long Range Arena's sizes: 32, 64 or 128 (Path-X) pixels; contour_length 6 easy, 9 intermediate, 14 hard."""
    return Drawing(size, contour_length, *_SIZES[size])


class Pictures(NamedTuple):
    pixels: Bytes  # [n size size]
    labels: Bytes  # [n]: 1 if the discs are on one path
    ends: Floats  # [n 2 2]: where the discs are, (y, x)


def generate_pathfinder(drawing: Drawing, count: int, *, seed: int = 0) -> Pictures:
    """Chunks of pictures, each of a generator of its own: what comes through in rounds of attempts.

    Raises OptionError where the paths find no room.
    """
    size = CHUNK * 32**2 // drawing.size**2  # as many pixels at every size
    chunks = list[Pictures]()
    with bar("pathfinder", count) as show:
        while len(chunks) * size < count:
            rng = np.random.default_rng([seed, len(chunks)])
            barren = 0
            rounds = list[Pictures]()
            while sum(len(one.labels) for one in rounds) < size:
                rounds.append(_round(drawing, max(32, size), rng))
                barren = 0 if len(rounds[-1].labels) else barren + 1
                if barren == _PATIENCE:
                    raise OptionError(
                        f"pathfinder: two paths of contour_length {drawing.contour_length} find no room in {drawing.size} x "
                        f"{drawing.size} pixels. Take fewer paddles, or a larger size."
                    )
            chunks.append(_joined(rounds, size))
            show(len(chunks) * size)
    return _joined(chunks, count)


def _joined(parts: list[Pictures], count: int) -> Pictures:
    return Pictures._make(np.concatenate(column)[:count] for column in zip(*parts, strict=True))


class _Canvas:
    """n pictures that grow in step: where no paddle may go, in cells of half a pixel, and the paddles that were placed."""

    def __init__(self, drawing: Drawing, count: int, rng: np.random.Generator):
        self.drawing = drawing
        self.rng = rng
        self.paddles = list[Floats]()
        reach = int(2 * drawing.clearance)
        near = np.mgrid[-reach : reach + 1, -reach : reach + 1].reshape(2, -1)
        self.near = near[:, (near**2).sum(0) <= (2 * drawing.clearance) ** 2]
        edge = reach + int(2 * drawing.thickness) + 2
        side = 2 * drawing.size + 2 * reach
        self.taken = np.ones((count, side, side), bool)
        self.taken[:, edge:-edge, edge:-edge] = False
        self.origin = reach

    def directions(self) -> Floats:
        """[n K] drawn angles."""
        return self.rng.uniform(0, 2 * np.pi, (len(self.taken), _DRAWS))

    def cells(self, at: Floats) -> Integers:
        """[2 ...]: row and column of each place [... 2]."""
        found = (2 * at).round().clip(-1, 2 * self.drawing.size).astype(int) + self.origin
        return np.moveaxis(found, -1, 0)

    def place(
        self, tip: Floats, angles: Floats, gap: float, wanted: NDArray[np.bool_]
    ) -> tuple[Floats, Floats]:
        """A paddle behind `tip` [n K 2] in the first of the directions [n K] that is free: its points [n 3 2], and its direction.

        The points are infinite where none is free or none is wanted.
        """
        steps = gap + self.drawing.paddle * np.array([0.0, 0.5, 1.0])
        drawn = tip[:, :, None] + steps[:, None] * _way(angles)[:, :, None]  # [n K 3 2]
        rows = np.arange(len(tip))
        free = ~self.taken[rows[:, None, None], *self.cells(drawn)].any(2) & wanted[:, None]
        first = free.argmax(1)
        new = np.where(free.any(1)[:, None, None], drawn[rows, first], np.inf)
        self.paddles.append(new)
        return new, angles[rows, first]

    def further(self, new: Floats, angle: Floats) -> tuple[Floats, Floats]:
        """The paddle behind these, which are marked only then: it may touch the one before it."""
        turn = np.linspace(-np.pi / 2, np.pi / 2, 181)
        weight = np.cos(turn) ** 2
        drawn = self.rng.choice(turn, (len(angle), _DRAWS), p=weight / weight.sum())
        there = _placed(new)
        tip = np.repeat(np.where(there[:, None], new[:, 2], 0.0)[:, None], _DRAWS, 1)
        found = self.place(tip, angle[:, None] + drawn, self.drawing.gap, there)
        self.mark(new)
        return found

    def mark(self, new: Floats) -> None:
        there = np.flatnonzero(_placed(new))
        near = self.cells(new[there])[..., None] + self.near[:, None, None]
        self.taken[there[:, None, None], *near] = True


def _placed(points: Floats) -> NDArray[np.bool_]:
    return np.isfinite(points[:, 2, 0])


def _way(angles: Floats) -> Floats:
    return np.stack([np.sin(angles), np.cos(angles)], -1)


def _round(drawing: Drawing, count: int, rng: np.random.Generator) -> Pictures:
    canvas = _Canvas(drawing, count, rng)
    border = 2 * drawing.seed_distance
    every = np.ones(count, bool)
    angle = canvas.directions()
    middle = rng.uniform(border, drawing.size - 1 - border, (count, 1, 2)).repeat(_DRAWS, 1)
    beside = middle + drawing.seed_distance * _way(angle)
    tips = [canvas.place(start, canvas.directions(), 0.0, every) for start in (middle, beside)]
    starts = np.stack([new[:, 0] for new, _ in tips], 1)
    for _ in range(drawing.contour_length - 1):
        tips = [canvas.further(*tip) for tip in tips]
    stops = np.stack([new[:, 2] for new, _ in tips], 1)
    for new, _ in tips:
        canvas.mark(new)
    whole = np.asarray(np.isfinite(stops).all((1, 2)))
    canvas.taken = canvas.taken[whole]
    canvas.paddles = [paddle[whole] for paddle in canvas.paddles]
    _distractors(canvas)
    rows, labels, origin = np.arange(whole.sum()), *rng.integers(0, 2, (2, whole.sum()))
    far = stops[whole][rows, np.where(labels, origin, 1 - origin)]
    ends = np.stack([starts[whole][rows, origin], far], 1)
    return Pictures(_drawn(drawing, canvas.paddles, ends), labels.astype(np.uint8), ends)


def _distractors(canvas: _Canvas) -> None:
    """Draws as many distractors as `room` allows, or fewer where they find none."""
    drawing = canvas.drawing
    count = len(canvas.taken)
    length = drawing.contour_length // 3
    missing = np.full(count, drawing.room // length)
    for _ in range(_TRIES * (drawing.room // length)):
        before = canvas.taken.copy()
        begun = len(canvas.paddles)
        start = canvas.rng.uniform(0, drawing.size - 1, (count, _DRAWS, 2))
        new, angle = canvas.place(start, canvas.directions(), 0.0, missing > 0)
        for _ in range(length - 1):
            new, angle = canvas.further(new, angle)
        canvas.mark(new)
        whole = _placed(new)
        missing -= whole
        canvas.taken[~whole] = before[~whole]
        for paddle in canvas.paddles[begun:]:
            paddle[~whole] = np.inf


def _drawn(drawing: Drawing, paddles: list[Floats], ends: Floats) -> Bytes:
    """[n size size]: the nearer to a stroke or disc, the brighter, within one pixel of its edge."""
    pad = int(drawing.paddle + drawing.disc) + 2
    side = drawing.size + 2 * pad
    ink = np.zeros((len(ends), side, side), np.float32)
    window = np.mgrid[-pad : pad + 1, -pad : pad + 1].reshape(2, -1).T
    strokes = [(points, drawing.thickness / 2) for points in paddles]
    strokes += [(end[:, None].repeat(3, 1), drawing.disc) for end in ends.swapaxes(0, 1)]
    for points, radius in strokes:
        there = np.flatnonzero(_placed(points))
        start = points[there, :1]
        along = points[there, 2:] - start
        grid = points[there, 1:2].round().astype(int) + window
        length = (along**2).sum(-1, keepdims=True)
        share = ((grid - start) * along).sum(-1, keepdims=True) / np.maximum(length, 1e-9)
        away = np.linalg.norm(grid - start - share.clip(0, 1) * along, axis=-1)
        where = (there[:, None], *np.moveaxis(grid + pad, -1, 0))
        ink[where] = np.maximum(ink[where], radius + 0.5 - away)
    return (255 * ink[:, pad:-pad, pad:-pad].clip(0, 1) + 0.5).astype(np.uint8)
