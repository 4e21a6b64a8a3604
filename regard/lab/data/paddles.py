"""Paddles: the short strokes that Pathfinder's paths are made of, and everything about them that no picture changes.

A stroke of `length` pixels is drawn `antialias` times larger and reduced by a Lanczos filter; its mask is the stroke
made wider by `margin` in the same way. Both are bytes, 255 for a full pixel. Coordinates are (y, x); a direction is
an angle a with displacement (sin a, cos a). Strokes are drawn and reduced by Pillow, as published.
"""

from dataclasses import dataclass
from functools import lru_cache
from math import ceil

import numpy as np
from numpy.typing import NDArray

Integers = NDArray[np.integer]
Floats = NDArray[np.floating]

DEGREES = 360  # directions that a first paddle may have: -180, -179, ..., 179 degrees
_BASE = 16  # added before rounding, so that coordinates round away from zero


@dataclass(frozen=True, eq=False)
class Paddles:
    """Tables by direction. Directions 0..359 are those of first paddles; then come the D of further ones.

    lines, masks: of the stroke that leaves the middle in a direction, and of the one that comes back from it; R is
    the middle's distance from the edge.
    """

    radius: int  # R
    lines: NDArray[np.uint8]  # [360 + D, 2R + 1, 2R + 1]
    masks: NDArray[np.uint8]
    kernels: tuple[
        Integers, ...
    ]  # [k 2] each: what must be free around the start of a first paddle
    kernel_of: Integers  # [360]
    head: Integers  # [360 2] from the start of a first paddle to its end
    pivot: Integers  # [360 2] from the start of a first paddle to the joint before it
    advance: Integers  # [360 + D 2] from one joint to the next
    ends: Integers  # [D 2] from a joint to the end of a further paddle
    turns: Integers  # [360 + D, C], of the D directions those that a direction can turn into
    weights: Floats  # [360 + D, C] of turning into them
    disc: Integers  # [k 2] within the margin


@lru_cache(maxsize=16)
def make_paddles(
    *, length: int, thickness: float, margin: int, antialias: int, continuity: float
) -> Paddles:
    first = np.arange(-180, 180) * np.pi / 180
    ends = _circle(length + margin)
    further = np.arctan2(ends[:, 0], ends[:, 1])
    angles = np.concatenate([first, further])
    apart = np.abs(further - angles[:, None])
    turn = np.minimum(np.minimum(apart, 2 * np.pi - apart) * continuity, np.pi / 2)
    weights = np.maximum(np.cos(turn), 0) ** 2
    choices = int((weights > 1e-12).sum(1).max())
    turns = np.argsort(-weights, axis=1, kind="stable")[:, :choices]
    radius = length + ceil(thickness) + margin
    drawn = np.concatenate([first, further + np.pi])  # further ones are drawn from their end
    lines, masks = zip(
        *(_stroke(angle, length, thickness, margin, antialias) for angle in drawn), strict=True
    )
    reach = length + margin
    kernels: dict[bytes, int] = {}
    kernel_of: list[int] = []
    offsets: list[Integers] = []
    for mask in masks[:DEGREES]:
        around = np.argwhere(mask == 255) - radius
        place = kernels.setdefault(around.tobytes(), len(kernels))
        if place == len(offsets):
            offsets.append(around)
        kernel_of.append(place)
    back = -np.sign(first + 1e-12) * np.pi + first  # the same line, the other way
    head = _moved(first, length)
    return Paddles(
        radius=radius,
        lines=np.stack(lines),
        masks=np.stack(masks),
        kernels=tuple(offsets),
        kernel_of=np.array(kernel_of),
        head=head,
        pivot=head + _moved(back, reach),
        advance=_moved(angles, length + 2 * margin),
        ends=ends,
        turns=turns,
        weights=np.take_along_axis(weights, turns, axis=1),
        disc=disc(margin),
    )


def disc(radius: int) -> Integers:
    """[k 2], the pixels within a radius."""
    y, x = np.mgrid[-radius : radius + 1, -radius : radius + 1]
    return np.argwhere(x**2 + y**2 <= radius**2) - radius


@lru_cache(maxsize=16)
def marker(radius: float, antialias: int) -> NDArray[np.uint8]:
    """A filled circle, [2M + 1, 2M + 1] with its centre in the middle."""
    reach = ceil(radius) + 3
    side = np.arange(-reach * antialias, (reach + 1) * antialias)
    inside = side[:, None] ** 2 + side**2 <= (radius * antialias) ** 2
    return _reduced(inside, 2 * reach + 1)


def _moved(angles: Floats, distance: float) -> Integers:
    """The whole-numbered displacement, rounded up."""
    exact = distance * np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return np.ceil(_BASE + exact).astype(np.int64) - _BASE


def _circle(radius: int) -> Integers:
    """[D 2], the pixels that a circle goes through, at one step of its angle for each pixel of its length."""
    angles = np.arange(0, 360, 360 / (2 * radius * np.pi)) * np.pi / 180
    exact = radius * np.stack([np.sin(angles), np.cos(angles)], axis=-1)
    return np.unique(np.floor(_BASE + exact).astype(np.int64) - _BASE, axis=0)


def _stroke(
    angle: float, length: int, thickness: float, margin: int, antialias: int
) -> tuple[NDArray[np.uint8], NDArray[np.uint8]]:
    from PIL import Image, ImageDraw

    radius = length + ceil(thickness) + margin
    middle, side = radius * antialias, 2 * radius + 1
    large = Image.new("L", (2 * middle + 1, 2 * middle + 1), 0)
    y, x = middle + _moved(np.array(angle), length * antialias)
    ImageDraw.Draw(large).line(
        [(middle, middle), (int(x), int(y))], fill=255, width=round(thickness * antialias)
    )
    stroke = np.asarray(large) > 0
    wide = np.zeros_like(stroke)
    padded = np.pad(stroke, margin * antialias)
    for dy, dx in disc(margin * antialias) + margin * antialias:
        wide |= padded[dy : dy + len(stroke), dx : dx + len(stroke)]
    return _reduced(stroke, side), _reduced(wide, side)


def _reduced(drawn: NDArray[np.bool_], side: int) -> NDArray[np.uint8]:
    from PIL import Image

    image = Image.fromarray(np.where(drawn, np.uint8(255), np.uint8(0)))
    return np.asarray(image.resize((side, side), Image.Resampling.LANCZOS))
