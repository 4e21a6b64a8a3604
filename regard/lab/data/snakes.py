"""Growing Pathfinder's dashed paths, many pictures at once.

    next joint   p' = p + (length + 2 margin) (direction of the last paddle)
    end          drawn among the pixels e of the circle of length + margin around p', with weight
                 cos^2(min(continuity |turn towards e|, pi / 2)) (1 - occupied within margin of e)
    refused      if the paddle's mask and what is occupied reach 1.8 together; drawn again up to `retrials` times

A paddle is marked as occupied when its path has got a further one, or is complete: it may touch the one before it.
Pictures are rows of flat arrays with an edge of R pixels that belongs to none of them.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.paddles import DEGREES, Integers, Paddles

_FULL = 459  # 1.8 of 255
FREE = 76  # 0.3 of 255: a first paddle covers no pixel above this


@dataclass(frozen=True, eq=False)
class Strokes:
    """One paddle in each of some pictures."""

    row: Integers
    at: Integers  # [n 2], the middle of the stroke
    direction: Integers
    contrast: NDArray[np.floating]

    def of(self, kept: NDArray[np.bool_]) -> "Strokes":
        return Strokes(self.row[kept], self.at[kept], self.direction[kept], self.contrast[kept])


@dataclass(eq=False)
class Tip:
    """End of a path in each of n pictures, in pixels."""

    pivot: Integers  # [n 2], the joint before its last paddle
    direction: Integers
    at: Integers  # [n 2], where the last paddle is drawn from

    def of(self, kept: NDArray[np.bool_]) -> "Tip":
        return Tip(self.pivot[kept], self.direction[kept], self.at[kept])

    def put(self, rows: Integers, new: "Tip") -> None:
        self.pivot[rows], self.direction[rows], self.at[rows] = new.pivot, new.direction, new.at


def empty_tip(count: int) -> Tip:
    return Tip(np.zeros((count, 2), int), np.zeros(count, int), np.zeros((count, 2), int))


Places = Callable[[Integers, Integers], tuple[Integers, Integers]]


class Canvas:
    """Occupied pixels of n pictures, as bytes [n, side + 2R, side + 2R]."""

    def __init__(self, paddles: Paddles, size: int, padding: int, count: int):
        self.paddles, self.size = paddles, size
        self.side = size + 2 * paddles.radius
        self.occupied = np.zeros((count, self.side, self.side), np.uint8)
        inner = self.inner()
        inner[:] = 255
        inner[:, padding:-padding, padding:-padding] = 0
        reach = np.arange(-paddles.radius, paddles.radius + 1)
        self.window = (reach[:, None] * self.side + reach).ravel()
        self.near = paddles.disc[:, 0] * self.side + paddles.disc[:, 1]

    def inner(self) -> NDArray[np.uint8]:
        edge = self.paddles.radius
        return self.occupied[:, edge : edge + self.size, edge : edge + self.size]

    def place(self, rows: Integers, at: Integers) -> Integers:
        """Flat index of a pixel in each of some pictures."""
        edge = self.paddles.radius
        return (rows * self.side + at[..., 0] + edge) * self.side + at[..., 1] + edge

    def inside(self, at: Integers) -> NDArray[np.bool_]:
        return np.all((at >= 0) & (at < self.size), axis=-1)

    def mark(self, rows: Integers, tip: Tip) -> None:
        """Occupy what the last paddle's mask covers."""
        flat = self.occupied.reshape(-1)
        where = self.place(rows, tip.at)[:, None] + self.window
        masks = self.paddles.masks[tip.direction].reshape(len(rows), len(self.window))
        flat[where] = np.maximum(flat[where], masks)

    def extend(
        self, rows: Integers, tip: Tip, retrials: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], Tip]:
        """One more paddle: which pictures could take it, and their new tips; their last paddle is marked."""
        paddles, flat = self.paddles, self.occupied.reshape(-1)
        pivot = tip.pivot + paddles.advance[tip.direction]
        turns = paddles.turns[tip.direction]
        ends = pivot[:, None] + paddles.ends[turns]
        inside = self.inside(ends)
        places = np.where(
            inside, self.place(rows[:, None], ends), self.place(rows, tip.at)[:, None]
        )
        crowded = flat[places[..., None] + self.near].max(-1)
        weights = paddles.weights[tip.direction] * inside * (1 - crowded / 255)
        total = weights.sum(1)
        pending = np.flatnonzero(total > 1e-4)
        grown = np.cumsum(weights, axis=1)
        chosen = np.full(len(rows), -1)
        for _ in range(1 + retrials):
            if not len(pending):
                break
            level = rng.random(len(pending)) * total[pending]
            turn = (grown[pending] > level[:, None]).argmax(1)
            end = turns[pending, turn]
            masks = paddles.masks[DEGREES + end].reshape(len(pending), len(self.window))
            under = flat[places[pending, turn][:, None] + self.window]
            fits = (under.astype(np.int16) + masks).max(1) < _FULL
            chosen[pending[fits]] = end[fits]
            pending = pending[~fits]
        able = chosen >= 0
        end = chosen[able]
        self.mark(rows[able], tip.of(able))
        new = Tip(pivot[able], DEGREES + end, pivot[able] + paddles.ends[end])
        return able, new

    def free(self, rows: Integers, direction: Integers, border: int) -> NDArray[np.bool_]:
        """[n size size]: where a first paddle of this direction may start, `border` pixels away from every edge."""
        edge, size = self.paddles.radius, self.size
        taken = self.occupied[rows] > FREE
        inner = taken[:, edge : edge + size, edge : edge + size]
        inner[:, :border] = inner[:, -border:] = True
        inner[:, :, :border] = inner[:, :, -border:] = True
        taken[:, :edge] = taken[:, edge + size :] = True
        taken[:, :, :edge] = taken[:, :, edge + size :] = True
        found = np.empty((len(rows), size, size), bool)
        kernel = self.paddles.kernel_of[direction]
        for one in np.unique(kernel):
            some = np.flatnonzero(kernel == one)
            under, covered = taken[some], np.zeros((len(some), size, size), bool)
            for dy, dx in self.paddles.kernels[one] + edge:
                covered |= under[:, dy : dy + size, dx : dx + size]
            found[some] = ~covered
        return found

    def first(self, at: Integers, direction: Integers) -> tuple[NDArray[np.bool_], Tip]:
        """The tips of paths of one paddle that starts at `at`; False where it would leave the picture."""
        head, pivot = at + self.paddles.head[direction], at + self.paddles.pivot[direction]
        return self.inside(head) & self.inside(pivot), Tip(pivot, direction, at)

    def seed(
        self, rows: Integers, retrials: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], Tip]:
        """A first paddle at a free place, any with the same chance: which pictures could take it, and its tips."""

        def places(pending: Integers, direction: Integers) -> tuple[Integers, Integers]:
            free = self.free(rows[pending], direction, 1).reshape(len(pending), self.size**2)
            count = free.sum(1)
            which = rng.integers(0, np.maximum(count, 1))
            return (np.cumsum(free, axis=1, dtype=np.int32) > which[:, None]).argmax(1), count

        return self._seeded(len(rows), retrials, places, rng)

    def seed_centre(
        self, count: int, retrials: int, border: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], Tip]:
        """The same on empty pictures, `border` pixels away from every edge."""
        kernels = len(self.paddles.kernels)
        _, directions = np.unique(self.paddles.kernel_of, return_index=True)
        free = self.free(np.zeros(kernels, int), directions, border).reshape(kernels, -1)
        found = [np.flatnonzero(open) for open in free]
        counts = np.array([len(open) for open in found])
        table = np.stack([np.resize(np.append(open, 0), counts.max() + 1) for open in found])

        def places(pending: Integers, direction: Integers) -> tuple[Integers, Integers]:
            kernel = self.paddles.kernel_of[direction]
            which = rng.integers(0, np.maximum(counts[kernel], 1))
            return table[kernel, which], counts[kernel]

        return self._seeded(count, retrials, places, rng)

    def _seeded(
        self, count: int, retrials: int, places: Places, rng: np.random.Generator
    ) -> tuple[NDArray[np.bool_], Tip]:
        able = np.zeros(count, bool)
        tip = empty_tip(count)
        pending = np.arange(count)
        for _ in range(1 + retrials):
            if not len(pending):
                break
            direction = rng.integers(0, DEGREES, len(pending))
            place, room = places(pending, direction)
            pending, direction, place = pending[room > 0], direction[room > 0], place[room > 0]
            inside, found = self.first(np.stack(np.divmod(place, self.size), axis=-1), direction)
            done = pending[inside]
            able[done] = True
            tip.put(done, found.of(inside))
            pending = pending[~inside]
        return able, tip.of(able)
