"""IMDb reviews in the folders of the release (Maas et al. 2011), which are Long Range Arena's Text task too."""

from pathlib import Path

from regard.lab.data.checks import need
from regard.lab.data.labelled import Texts, label
from regard.lab.data.own.format import Format, Parts

LAYOUT = "a folder with train/pos, train/neg, test/pos and test/neg, a review a .txt file (aclImdb)"
CLASSES = ("neg", "pos")


def read(path: Path) -> Parts:
    return {part: _folder(path / part) for part in ("train", "test")}


def _folder(path: Path) -> Texts:
    texts, names = [], []
    for name in CLASSES:
        for file in sorted(need(path / name, LAYOUT).glob("*.txt")):
            texts.append(file.read_bytes())
            names.append(name)
    return label(texts, names, CLASSES)


FORMAT = Format(
    name="imdb",
    about="IMDb reviews (aclImdb), good or bad; Long Range Arena's Text",
    layout=LAYOUT,
    read=read,
)
