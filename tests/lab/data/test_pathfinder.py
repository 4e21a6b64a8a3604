import dataclasses

import numpy as np
import pytest
from scipy import ndimage

from regard.core import OptionError
from regard.lab.data.paddles import make_paddles, marker
from regard.lab.data.pathfinder import CHUNK, Drawing, chunk_of, generate_pathfinder, published
from regard.lab.data.snakes import Canvas, Tip

EASY = published(32, 6)
PADDLES = make_paddles(length=2, thickness=0.5, margin=1, antialias=2, continuity=1.0)


@pytest.fixture(scope="module")
def drawn():
    return generate_pathfinder(EASY, CHUNK + 40)


def test_published_settings():
    hard, path_x = published(32), published(128)
    assert (hard.contour_length, hard.distractor_length, hard.distractors) == (14, 4, 5)
    assert (path_x.margins, path_x.continuity, path_x.seed_distance) == ((2, 3), 1.8, 20)
    assert (path_x.distractor_length, path_x.distractors, path_x.paddle_length) == (4, 8, 5)
    assert published(64).distractors == 5


def test_pictures_and_labels(drawn):
    assert drawn.pixels.shape == (CHUNK + 40, 32, 32) and drawn.pixels.dtype == np.uint8
    assert (drawn.pixels.max((1, 2)) == 255).all()
    assert drawn.labels.mean() == pytest.approx(0.5, abs=0.12)
    rows = np.arange(len(drawn.labels))
    for end in (0, 1):  # a disc of radius 1.5 covers its middle whole
        y, x = drawn.ends[:, end].T
        assert drawn.pixels[rows, y, x].min() >= 120
    # the first target starts in the middle, two seed distances from every edge, the other one from it
    assert 5 <= drawn.ends[:, 0].min() and drawn.ends[:, 0].max() <= 26
    assert len(np.unique(drawn.pixels.reshape(len(rows), -1), axis=0)) == len(rows)


def test_discs_of_label_one_are_on_one_path():
    """By flood fill: gaps of two pixels are closed, and a path is then in one piece."""
    alone = dataclasses.replace(EASY, distractors=0)
    found = generate_pathfinder(alone, CHUNK)
    joined = []
    for picture, ends in zip(found.pixels, found.ends, strict=True):
        closed = ndimage.binary_dilation(picture > 40, iterations=1, structure=np.ones((3, 3)))
        pieces, _ = ndimage.label(closed, structure=np.ones((3, 3)))
        joined.append(pieces[tuple(ends[0])] == pieces[tuple(ends[1])])
    same = found.labels == 1
    assert np.mean(np.array(joined)[same]) > 0.98
    assert np.mean(np.array(joined)[~same]) < 0.75


def test_one_picture_of_path_x():
    """Few paddles, so that it is quick; a chunk holds as many pixels as at 32."""
    found = generate_pathfinder(published(128, 3), 1)
    assert found.pixels.shape == (1, 128, 128) and found.pixels.max() == 255
    y, x = found.ends[0].T
    assert (found.pixels[0, y, x] >= 120).all()
    assert [chunk_of(size) for size in (32, 64, 128)] == [CHUNK, CHUNK // 4, CHUNK // 16]


def test_more_pictures_and_more_processes_begin_with_the_same(drawn):
    few = generate_pathfinder(EASY, 40)
    two = generate_pathfinder(EASY, CHUNK + 40, processes=2)
    assert np.array_equal(few.pixels, drawn.pixels[:40])
    for one, other in zip(drawn, two, strict=True):
        assert np.array_equal(one, other)
    other = generate_pathfinder(EASY, 40, seed=1)
    assert not np.array_equal(few.pixels, other.pixels)


def slow_chances(occupied, pivot, angle):
    """End pixel -> chance, by loops over the printed rule."""
    size, chances = len(occupied), {}
    for step in range(int(np.ceil(2 * np.pi * 3))):
        turn = step / 3
        y, x = (
            int(np.floor(p + 3 * f(turn))) for p, f in zip(pivot, (np.sin, np.cos), strict=True)
        )
        if not (0 <= y < size and 0 <= x < size):
            continue
        towards = np.arctan2(y - pivot[0], x - pivot[1])
        delta = abs((towards - angle + np.pi) % (2 * np.pi) - np.pi)
        near = [(y, x), (y + 1, x), (y - 1, x), (y, x + 1), (y, x - 1)]
        taken = max(occupied[b, a] for b, a in near if 0 <= b < size and 0 <= a < size)
        chances[y, x] = max(np.cos(min(delta, np.pi / 2)), 0) ** 2 * (1 - taken / 255)
    total = sum(chances.values())
    return {end: chance / total for end, chance in chances.items() if chance > 1e-12}


def test_a_further_paddle_is_drawn_by_the_rule():
    count, rng = 20000, np.random.default_rng(0)
    canvas = Canvas(PADDLES, 32, 1, count)
    canvas.inner()[:, 9:14, 20:24] = np.array([90, 160, 30, 220])
    canvas.inner()[:, 13:18, 17:19] = 200
    direction = 180 + 35
    tip = Tip(np.tile([8, 14], (count, 1)), np.full(count, direction), np.tile([9, 15], (count, 1)))
    angle = np.deg2rad(35)
    pivot = np.ceil([8 + 4 * np.sin(angle), 14 + 4 * np.cos(angle)])
    expected = slow_chances(canvas.inner()[0].copy(), pivot, angle)
    able, new = canvas.extend(np.arange(count), tip, 0, rng)  # no retrial: what fits is kept
    assert set(map(tuple, new.at)) <= set(expected)
    assert (new.pivot == pivot).all()
    # what does not fit is refused: its frequencies are those of the rule among the ends that fit
    ends, counts = np.unique(new.at, axis=0, return_counts=True)
    chances = np.array([expected[tuple(end)] for end in ends])
    assert counts / count == pytest.approx(chances, abs=4 * 0.5 / np.sqrt(count))
    assert able.mean() == pytest.approx(chances.sum(), abs=1e-2)


def test_a_paddle_has_to_keep_off_what_is_occupied():
    canvas = Canvas(PADDLES, 32, 1, 1)
    canvas.inner()[0, 3:29, 19] = 255
    rows, tip = np.array([0]), Tip(np.array([[16, 12]]), np.array([180]), np.array([[16, 13]]))
    able, _ = canvas.extend(rows, tip, 50, np.random.default_rng(0))
    walled = Canvas(PADDLES, 32, 1, 1)
    walled.inner()[0, :, 17:] = 255
    stuck, _ = walled.extend(rows, tip, 50, np.random.default_rng(0))
    assert able.all() and not stuck.any()


def test_strokes_and_discs():
    east = PADDLES.lines[180]  # degree 0: from the middle to the right
    assert PADDLES.radius == 4 and east.shape == (9, 9)
    assert east[4, 4:7].min() > 100 and east[4, :3].max() < 20 and east[:3].max() < 20
    assert (PADDLES.masks[180].astype(int) + 5 >= east).all()
    assert PADDLES.masks[180][4, 4:7].min() == 255 and PADDLES.masks[180][3:6, 4:7].min() > 150
    south = PADDLES.lines[270]
    assert np.abs(south.astype(int) - east.T).max() < 40
    disc = marker(1.5, 2)
    middle = len(disc) // 2
    assert disc[middle, middle] == 255 and disc[middle, middle + 3] < 20
    assert disc.sum() / 255 == pytest.approx(np.pi * 1.5**2, rel=0.2)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"seed_distance": 8}, r"seed_distance \(8\)"),
        ({"thickness": 0.3}, r"thickness \(0.3\) times antialias"),
        ({"contour_length": 1}, r"contour_length \(1\)"),
        ({"margins": ()}, "margins must hold"),
        ({"size": -4}, r"size \(-4\)"),
    ],
)
def test_values_that_cannot_be_used_are_named(change, words):
    with pytest.raises(OptionError, match=words):
        Drawing(**{**dataclasses.asdict(EASY), **change})


def test_other_sizes_are_refused():
    with pytest.raises(OptionError, match=r"size \(48\) must be 32, 64 or 128"):
        published(48)
