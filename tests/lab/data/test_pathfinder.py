"""Pathfinder: pictures, and labels by flood fill."""

import numpy as np
import pytest
from scipy import ndimage

from regard.core import OptionError
from regard.lab.data import pathfinder
from regard.lab.data.pathfinder import CHUNK, generate_pathfinder, published

EASY = published(32, 6)


@pytest.fixture(scope="module")
def drawn():
    return generate_pathfinder(EASY, CHUNK + 40)


def test_pictures_and_labels(drawn):
    assert drawn.pixels.shape == (CHUNK + 40, 32, 32) and drawn.pixels.dtype == np.uint8
    assert (drawn.pixels.max((1, 2)) == 255).all()
    assert drawn.labels.mean() == pytest.approx(0.5, abs=0.12)
    rows = np.arange(len(drawn.labels))
    for end in (0, 1):  # a disc of radius 1.5 covers its middle whole
        y, x = drawn.ends[:, end].round().astype(int).T
        assert drawn.pixels[rows, y, x].min() == 255
    assert len(np.unique(drawn.pixels.reshape(len(rows), -1), axis=0)) == len(rows)
    ink = (drawn.pixels > 60).mean((1, 2))
    assert 0.08 < ink.min() and ink.max() < 0.25


def pieces_with_both_discs(found, dilation):
    joined = []
    for picture, ends in zip(found.pixels, found.ends.round().astype(int), strict=True):
        closed = ndimage.binary_dilation(
            picture > 60, iterations=dilation, structure=np.ones((3, 3))
        )
        pieces, _ = ndimage.label(closed, structure=np.ones((3, 3)))
        joined.append(pieces[tuple(ends[0])] == pieces[tuple(ends[1])])
    return np.array(joined)


@pytest.mark.parametrize(("size", "dilation"), [(32, 1), (128, 2)])
def test_discs_of_label_one_are_on_one_path(size, dilation):
    alone = published(size, 6)._replace(room=0)
    found = generate_pathfinder(alone, CHUNK if size == 32 else 24)
    joined, same = pieces_with_both_discs(found, dilation), found.labels == 1
    assert joined[same].all() and joined[~same].mean() < 0.75


def test_distractors_fill_the_picture_and_touch_no_target():
    alone = generate_pathfinder(EASY._replace(room=0), 60)
    full = generate_pathfinder(EASY, 60)
    assert (full.pixels > 60).mean() > 1.4 * (alone.pixels > 60).mean()


def test_more_pictures_begin_with_the_same(drawn):
    few = generate_pathfinder(EASY, 40)
    assert np.array_equal(few.pixels, drawn.pixels[:40])
    assert not np.array_equal(few.pixels, generate_pathfinder(EASY, 40, seed=1).pixels)


def test_what_cannot_be_drawn_is_refused(monkeypatch):
    monkeypatch.setattr(pathfinder, "_PATIENCE", 3)
    crowded = published(32, 20)._replace(clearance=9)
    with pytest.raises(OptionError, match="contour_length 20 find no room in 32 x 32 pixels"):
        generate_pathfinder(crowded, 1)
