"""Pathfinder pictures from their drawing rule (Linsley et al. 2018, arXiv 1805.08315; sizes of arXiv 2011.04006).

    two targets     start one seed distance apart, grow by turns to contour_length paddles; begun anew if one is stuck
    distractors     short paths by the same rule wherever there is room; one that finds none is left out
    two discs       on the start of a random target, and on the far end of the same (label 1) or of the other (0)

The picture is the pixelwise maximum of all, scaled so that its brightest pixel is 255. As in the published program,
targets have snake contrast times paddle contrast and distractors the snake contrast alone, and the last paddle of the
first target is not marked as occupied. Its single paddles (not used for the published sets) are left out. For the room
of a first paddle it tests a footprint one pixel aside, which bars some directions; here it is the paddle's own. A disc near
an edge is cut as if the picture went on. `regard.lab.data.snakes` grows the paths.

Pictures come in chunks, each from a generator of its own: more pictures of a seed begin with the same ones, and any
number of processes gives the same pictures. Within a chunk many attempts grow in step. A chunk is CHUNK pictures of 32 x 32
pixels, and fewer of larger ones: nobody waits for two hundred to see one.
"""

from contextlib import closing
from dataclasses import dataclass
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.generated import bar, drawn
from regard.lab.data.paddles import DEGREES, Integers, Paddles, make_paddles, marker
from regard.lab.data.snakes import FREE, Canvas, Strokes, Tip, empty_tip

CHUNK = 200  # pictures of 32 x 32 pixels
_PATIENCE = 500  # rounds of attempts without one picture
_CELLS = 2**21  # bytes of a round's pictures


@dataclass(frozen=True, kw_only=True)
class Drawing:
    """The rule's parameters. Lengths are pixels; contour and distractor lengths are paddles.

    Of margins one is drawn for each picture, of snake contrasts one for each path, of paddle contrasts one for each
    paddle. A paddle that would touch another is drawn again paddle_retrials times, a distractor distractor_retrials.
    """

    size: int
    contour_length: int
    distractor_length: int
    distractors: int
    seed_distance: int
    marker_radius: float
    paddle_length: int
    thickness: float
    margins: tuple[int, ...]
    continuity: float
    snake_contrasts: tuple[float, ...]
    paddle_contrasts: tuple[float, ...]
    padding: int = 1
    antialias: int = 2
    paddle_retrials: int = 2
    distractor_retrials: int = 4

    def __post_init__(self) -> None:
        names = ("size", "contour_length", "distractor_length", "seed_distance", "paddle_length")
        check_sizes("pathfinder", **{name: getattr(self, name) for name in names})
        check_sizes("pathfinder", padding=self.padding, antialias=self.antialias)
        if self.contour_length < 2:
            raise OptionError(
                "pathfinder: contour_length (1) must be at least 2: a path has two ends"
            )
        if 4 * self.seed_distance >= self.size:
            raise OptionError(
                f"pathfinder: seed_distance ({self.seed_distance}) must be below a quarter of size ({self.size}): "
                "the first paddle lies two of them away from every edge"
            )
        if (self.thickness * self.antialias) % 1 or self.thickness <= 0:
            raise OptionError(
                f"pathfinder: thickness ({self.thickness}) times antialias ({self.antialias}) must be a whole number"
            )
        for name in ("margins", "snake_contrasts", "paddle_contrasts"):
            if not getattr(self, name):
                raise OptionError(f"pathfinder: {name} must hold at least one value")


def published(size: int, contour_length: int = 14) -> Drawing:
    """The Long Range Arena's settings: 32, 64 or 128 (Path-X) pixels; contour_length 6 easy, 9 intermediate, 14 hard."""
    if size not in _PUBLISHED:
        raise OptionError(
            f"pathfinder: size ({size}) must be 32, 64 or 128; other sizes need a Drawing of their own"
        )
    told, room = _PUBLISHED[size]
    distractor_length = contour_length // 3
    if distractor_length < 1:
        raise OptionError(f"pathfinder: contour_length ({contour_length}) must be at least 3")
    return Drawing(
        size=size,
        contour_length=contour_length,
        distractor_length=distractor_length,
        distractors=room // distractor_length,
        **told,
    )


_PUBLISHED: dict[int, tuple[dict, int]] = {
    32: (
        dict(
            seed_distance=7,
            marker_radius=1.5,
            paddle_length=2,
            thickness=0.5,
            margins=(1,),
            continuity=1.0,
            snake_contrasts=(2.0,),
            paddle_contrasts=(0.75,),
        ),
        20,
    ),
    64: (
        dict(
            seed_distance=12,
            marker_radius=2.5,
            paddle_length=5,
            thickness=1.0,
            margins=(1,),
            continuity=1.8,
            snake_contrasts=(0.8,),
            paddle_contrasts=(1.0,),
        ),
        22,
    ),
    128: (
        dict(
            seed_distance=20,
            marker_radius=3.0,
            paddle_length=5,
            thickness=1.5,
            margins=(2, 3),
            continuity=1.8,
            snake_contrasts=(0.9,),
            paddle_contrasts=(1.0,),
        ),
        35,
    ),
}
"""Size -> its settings, and the paddles of all distractors together."""


class Pictures(NamedTuple):
    pixels: NDArray[np.uint8]  # [n size size]
    labels: NDArray[np.uint8]  # [n]: 1 if the discs are on one path
    ends: Integers  # [n 2 2]: where the discs are, (y, x)


def generate_pathfinder(
    drawing: Drawing, count: int, *, seed: int = 0, processes: int = 1
) -> Pictures:
    """`count` different pictures. Raises OptionError where the paths find no room."""
    check_sizes("pathfinder", count=count, processes=processes)
    check_seed("pathfinder", seed)
    seen: set[bytes] = set()
    parts: list[Pictures] = []
    kept = 0
    chunks = drawn(partial(draw_chunk, drawing, seed), processes)
    with bar("pathfinder", count) as show, closing(chunks):
        for part in chunks:
            keys = [blake2b(picture.tobytes(), digest_size=16).digest() for picture in part.pixels]
            new = [place for place, key in enumerate(keys) if key not in seen and not seen.add(key)]  # type: ignore[func-returns-value]
            new = new[: count - kept]
            parts.append(Pictures._make(column[new] for column in part))
            kept += len(new)
            show(kept)
            if kept == count:
                break
    columns = zip(*parts, strict=True)
    return Pictures._make(np.concatenate(column) for column in columns)


def chunk_of(size: int) -> int:
    """Pictures in a chunk: as many pixels at every size."""
    return max(1, CHUNK * 32**2 // size**2)


def draw_chunk(drawing: Drawing, seed: int, number: int) -> Pictures:
    rng, count = np.random.default_rng([seed, number]), chunk_of(drawing.size)
    labels = rng.integers(0, 2, count)
    margin = rng.choice(np.array(drawing.margins), count)
    pixels = np.empty((count, drawing.size, drawing.size), np.uint8)
    ends = np.empty((count, 2, 2), np.int64)
    for one in sorted(set(drawing.margins)):
        rows = np.flatnonzero(margin == one)
        if len(rows):
            pixels[rows], ends[rows] = _draw(drawing, one, labels[rows], rng)
    return Pictures(pixels, labels.astype(np.uint8), ends)


def _draw(
    drawing: Drawing, margin: int, labels: Integers, rng: np.random.Generator
) -> tuple[NDArray[np.uint8], Integers]:
    paddles = make_paddles(
        length=drawing.paddle_length,
        thickness=drawing.thickness,
        margin=margin,
        antialias=drawing.antialias,
        continuity=drawing.continuity,
    )
    canvas, strokes, starts, stops = _targets(drawing, paddles, len(labels), rng)
    strokes += _distractors(drawing, canvas, rng)
    images = _inked(drawing, paddles, len(labels), strokes)
    rows = np.arange(len(labels))
    origin = rng.integers(0, 2, len(labels))
    ends = np.stack(
        [starts[rows, origin], stops[rows, np.where(labels, origin, 1 - origin)]], axis=1
    )
    return _marked(drawing, images, ends), ends


def _targets(
    drawing: Drawing, paddles: Paddles, count: int, rng: np.random.Generator
) -> tuple[Canvas, list[Strokes], Integers, Integers]:
    """Rounds of attempts until `count` have come through; every round has the same length, so none is favoured."""
    whole = Canvas(paddles, drawing.size, drawing.padding, count)
    batch = max(32, _CELLS // whole.side**2)
    starts = np.empty((count, 2, 2), np.int64)
    stops = np.empty_like(starts)
    strokes: list[Strokes] = []
    done = barren = 0
    while done < count:
        canvas = Canvas(paddles, drawing.size, drawing.padding, batch)
        rows, drawn, first, last = _attempt(drawing, canvas, batch, rng)
        rows = rows[: count - done]
        barren = 0 if len(rows) else barren + 1
        if barren == _PATIENCE:
            raise OptionError(
                f"pathfinder: two paths of contour_length {drawing.contour_length} find no room in {drawing.size} x "
                f"{drawing.size} pixels: none in {batch * barren} attempts. Take fewer paddles, or a larger size."
            )
        new = np.full(batch, -1)
        new[rows] = done + np.arange(len(rows))
        for stroke in drawn:
            held = stroke.of(new[stroke.row] >= 0)
            strokes.append(Strokes(new[held.row], held.at, held.direction, held.contrast))
        whole.occupied[new[rows]] = canvas.occupied[rows]
        starts[new[rows]], stops[new[rows]] = first[rows], last[rows]
        done += len(rows)
    return whole, strokes, starts, stops


def _attempt(
    drawing: Drawing, canvas: Canvas, batch: int, rng: np.random.Generator
) -> tuple[Integers, list[Strokes], Integers, Integers]:
    """Rows of the attempts that came through, all strokes, and [batch 2 2] the start and the end of both paths."""
    snake = rng.permuted(np.tile(drawing.snake_contrasts * 2, (batch, 1)), axis=1)[:, :2]
    alive, tips = _begin(drawing, canvas, batch, rng)
    starts = np.zeros((batch, 2, 2), np.int64)
    stops = np.zeros_like(starts)
    strokes = []
    for path, tip in enumerate(tips):
        starts[alive, path] = tip.at
        contrast = snake[alive, path] * rng.choice(drawing.paddle_contrasts, len(alive))
        strokes.append(Strokes(alive, tip.at, tip.direction, contrast))
    for _ in range(drawing.contour_length - 1):
        paddle = rng.choice(drawing.paddle_contrasts, batch)
        for path in range(2):
            able, tips[path] = canvas.extend(alive, tips[path], drawing.paddle_retrials, rng)
            alive = alive[able]
            tips[1 - path] = tips[1 - path].of(able)
            tip = tips[path]
            strokes.append(
                Strokes(alive, tip.at, tip.direction, snake[alive, path] * paddle[alive])
            )
    for path, tip in enumerate(tips):
        stops[alive, path] = tip.at
    canvas.mark(alive, tips[1])
    return alive, strokes, starts, stops


def _begin(
    drawing: Drawing, canvas: Canvas, batch: int, rng: np.random.Generator
) -> tuple[Integers, list[Tip]]:
    rows = np.arange(batch)
    border = 2 * drawing.seed_distance
    able, first = canvas.seed_centre(batch, drawing.paddle_retrials, border, rng)
    rows = rows[able]
    second = empty_tip(len(rows))
    pending = np.arange(len(rows))
    for _ in range(1 + drawing.paddle_retrials):
        direction = rng.integers(0, DEGREES, len(pending))
        angle = rng.integers(0, 360, len(pending)) * np.pi / 180
        away = drawing.seed_distance * np.stack([np.sin(angle), np.cos(angle)], axis=-1)
        at = np.round(first.at[pending] + away).astype(np.int64)
        inside, found = canvas.first(at, direction)
        second.put(pending[inside], found.of(inside))
        pending = pending[~inside]
    able = np.ones(len(rows), bool)
    able[pending] = False
    return rows[able], [first.of(able), second.of(able)]


def _distractors(drawing: Drawing, canvas: Canvas, rng: np.random.Generator) -> list[Strokes]:
    strokes: list[Strokes] = []
    for _ in range(drawing.distractors):
        pending = np.arange(len(canvas.occupied))
        for _ in range(1 + drawing.distractor_retrials):
            if not len(pending):
                break
            rows, drawn = _distractor(drawing, canvas, pending, rng)
            strokes += drawn
            pending = np.setdiff1d(pending, rows, assume_unique=True)
    return strokes


def _distractor(
    drawing: Drawing, canvas: Canvas, pending: Integers, rng: np.random.Generator
) -> tuple[Integers, list[Strokes]]:
    """One try in each picture: rows where it is complete. Others stay as they were."""
    before = canvas.occupied[pending]
    roomy = (canvas.inner()[pending] <= FREE).mean((1, 2)) >= 0.01
    rows = pending[roomy]
    able, tip = canvas.seed(rows, drawing.paddle_retrials, rng)
    rows = rows[able]
    drawn = []
    for step in range(drawing.distractor_length):
        if step:
            able, tip = canvas.extend(rows, tip, drawing.paddle_retrials, rng)
            rows = rows[able]
        contrast = rng.choice(drawing.snake_contrasts, len(rows))
        drawn.append(Strokes(rows, tip.at, tip.direction, contrast))
    canvas.mark(rows, tip)
    failed = ~np.isin(pending, rows)
    canvas.occupied[pending[failed]] = before[failed]
    through = np.zeros(len(canvas.occupied), bool)
    through[rows] = True
    return rows, [stroke.of(through[stroke.row]) for stroke in drawn]


def _inked(
    drawing: Drawing, paddles: Paddles, count: int, strokes: list[Strokes]
) -> NDArray[np.floating]:
    """[n, size + 2R, size + 2R], the paddles in their contrasts."""
    side = drawing.size + 2 * paddles.radius
    images = np.zeros((count, side, side), np.float32)
    flat = images.reshape(-1)
    reach = np.arange(2 * paddles.radius + 1)
    window = (reach[:, None] * side + reach).ravel()
    for stroke in strokes:
        corner = (stroke.row * side + stroke.at[:, 0]) * side + stroke.at[:, 1]
        where = corner[:, None] + window
        ink = paddles.lines[stroke.direction].reshape(len(stroke.row), len(window))
        flat[where] = np.maximum(flat[where], ink * stroke.contrast[:, None].astype(np.float32))
    inner = slice(paddles.radius, paddles.radius + drawing.size)
    return images[:, inner, inner]


def _marked(drawing: Drawing, images: NDArray[np.floating], ends: Integers) -> NDArray[np.uint8]:
    disc = marker(drawing.marker_radius, drawing.antialias)
    reach = len(disc) // 2
    images = np.pad(images, ((0, 0), (reach, reach), (reach, reach)))
    rows = np.arange(len(images))[:, None, None]
    window = np.arange(2 * reach + 1)
    for at in (ends[:, 0], ends[:, 1]):
        y, x = at[:, 0, None, None] + window[:, None], at[:, 1, None, None] + window
        images[rows, y, x] = np.maximum(images[rows, y, x], disc)
    images = images[:, reach : reach + drawing.size, reach : reach + drawing.size]
    brightest = images.max((1, 2), keepdims=True)
    return (images * (255 / brightest) + 0.5).astype(np.uint8)
