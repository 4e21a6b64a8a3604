"""Pathfinder as Long Range Arena released it: pictures in folders, and lists of `folder file number label ...` beside them.

The release has no splits; the order is that of the lists, by number. A picture of no bytes, of which the release has one,
is left out.
"""

from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.labelled import Images
from regard.lab.data.own.format import Format, Parts, text_of

LAYOUT = "a folder with metadata/*.npy and imgs/, such as pathfinder32/curv_contour_length_14"


def read(path: Path) -> Parts:
    lists = sorted(
        need(path / "metadata", LAYOUT).glob("*.npy"),
        key=lambda file: (len(file.stem), file.stem),
    )
    pictures, labels = [], []
    for file in lists:
        for number, line in enumerate(text_of(file).splitlines(), 1):
            words = line.split()
            if len(words) < 4 or words[3] not in ("0", "1"):
                raise StoredDataError(
                    f"{file}, line {number}: expected a folder, a file, a number and a label (0 or 1)"
                )
            picture = need(path / words[0] / words[1], LAYOUT)
            if picture.stat().st_size:
                pictures.append(_grey(picture))
                labels.append(int(words[3]))
    if not pictures:
        raise StoredDataError(f"{path / 'metadata'} lists no picture")
    return {"all": Images(np.stack(pictures), np.array(labels, dtype=np.int64))}


def _grey(path: Path) -> NDArray[np.integer]:
    from PIL import Image, UnidentifiedImageError

    try:
        with Image.open(path) as picture:
            return np.asarray(picture.convert("L"), dtype=np.uint8)
    except (UnidentifiedImageError, OSError) as error:
        raise StoredDataError(f"{path} cannot be read as a picture: {error}") from None


FORMAT = Format(
    name="lra_pathfinder",
    about="Long Range Arena, Pathfinder and Path-X: are two dots joined by a dashed path",
    layout=LAYOUT,
    read=read,
)
