"""Published data sets that no package brings, from a copy that the user has: `--task.path` names its folder or file.

These carry the names of the sets: the numbers compare with published ones where sizes and lengths are the published ones.
`regard.lab.data.own` says what lies where. Without a path, or with one that holds something else, loading is refused.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.examples import Examples
from regard.lab.data.labelled import Images, apart
from regard.lab.data.listops import VOCABULARY, Expressions
from regard.lab.data.own import OWN
from regard.lab.data.own.cifar10 import grey
from regard.lab.data.own.hugging_face import read_columns
from regard.lab.data.windows import BYTE_VOCABULARY, cut, sample
from regard.lab.tasks.byte_text import ByteText
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.language_model import LanguageModelling
from regard.lab.tasks.match import Match
from regard.lab.tasks.pixels import pixel_rows
from regard.lab.tasks.shares import stratified
from regard.lab.tasks.task import Splits


def read_own(who: str, path: Path | None, form: str) -> Any:
    """Split -> its content. Raises OptionError without a path, MissingDataError and StoredDataError for a wrong one."""
    return OWN[form].read(own_path(who, path, form))


def own_path(who: str, path: Path | str | None, form: str, *, option: str = "path") -> Path:
    """The user's path. Raises OptionError, which says what should lie there, where none is given."""
    if not path:
        raise OptionError(
            f"{who}: {option} must name your copy: {OWN[form].layout}. Nothing here brings this set."
        )
    return Path(path).expanduser()


@dataclass(frozen=True, kw_only=True)
class LRAListOps(Classify):
    """The Long Range Arena's files, with its splits."""

    name = "lra_listops"
    vocab_size = len(VOCABULARY)
    num_classes = 10

    path: Path | None = None
    length: int = 2000  # tokens of an expression that are read

    def __post_init__(self) -> None:
        check_sizes(self.name, length=self.length)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        found = read_own(self.name, self.path, "lra_listops")
        return Splits(*(self._part(found[name]) for name in ("train", "valid", "test")))

    def _part(self, found: Expressions) -> Examples:
        lengths = np.minimum(found.lengths, self.length)
        starts = np.cumsum(found.lengths) - found.lengths
        within = np.arange(len(found.tokens)) - np.repeat(starts, found.lengths)
        return Examples(found.tokens[within < self.length], lengths, found.values)


@dataclass(frozen=True, kw_only=True)
class IMDb(ByteText):
    """The Long Range Arena's Text at length 4000. A tenth of the training part, drawn by `seed`, is validation: the
    Arena's code validates on the test part, which is not done here."""

    name = "imdb"
    num_classes = 2

    path: Path | None = None
    length: int = 1000

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, length=self.length)

    def load(self) -> Splits:
        found = read_own(self.name, self.path, "imdb")
        train, test = found["train"], found["test"]
        rows, valid, _ = stratified(train.labels, 0.1, 0.0, self.seed)
        return Splits(
            self.part(train.texts, train.labels, rows),
            self.part(train.texts, train.labels, valid),
            self.part(test.texts, test.labels, np.arange(len(test.texts))),
        )


@dataclass(frozen=True, kw_only=True)
class CIFAR10Grey(Classify):
    """The Long Range Arena's Image: 1,024 grey values, token = value + 1; a tenth of the training part is validation."""

    name = "cifar10_grey"
    vocab_size = 257
    num_classes = 10

    path: Path | None = None

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)

    @property
    def max_len(self) -> int:
        return 1024

    def load(self) -> Splits:
        found = read_own(self.name, self.path, "cifar10")
        train, test = (
            Images(grey(found[name].pixels), found[name].labels) for name in ("train", "test")
        )
        rows, valid, _ = stratified(train.labels, 0.1, 0.0, self.seed)
        every = np.arange(len(test.labels))
        return Splits(pixel_rows(train, rows), pixel_rows(train, valid), pixel_rows(test, every))


@dataclass(frozen=True, kw_only=True)
class MNIST(Classify):
    """784 grey values, token = value + 1; a tenth of the training part, drawn by `seed`, is validation."""

    name = "mnist"
    vocab_size = 257
    num_classes = 10

    path: Path | None = None

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)

    @property
    def max_len(self) -> int:
        return 784

    def load(self) -> Splits:
        found = read_own(self.name, self.path, "mnist")
        train, test = found["train"], found["test"]
        if train.pixels.shape[1:] != (28, 28):
            raise OptionError(
                f"{self.name}: pictures have 28 x 28 pixels, and these {train.pixels.shape[1:]}"
            )
        rows, valid, _ = stratified(train.labels, 0.1, 0.0, self.seed)
        every = np.arange(len(test.labels))
        return Splits(pixel_rows(train, rows), pixel_rows(train, valid), pixel_rows(test, every))


@dataclass(frozen=True, kw_only=True)
class LRAPathfinder(Classify):
    """The Long Range Arena's pictures; the first eight tenths train, then a tenth each, as published."""

    name = "lra_pathfinder"
    vocab_size = 257
    num_classes = 2

    path: Path | None = None
    size: int = 32

    def __post_init__(self) -> None:
        check_sizes(self.name, size=self.size)

    @property
    def max_len(self) -> int:
        return self.size**2

    def load(self) -> Splits:
        images = read_own(self.name, self.path, "lra_pathfinder")["all"]
        if images.pixels.shape[1:] != (self.size, self.size):
            raise OptionError(
                f"{self.name}: size is {self.size}, and the pictures have {images.pixels.shape[1:]} pixels"
            )
        borders = [len(images.labels) * 8 // 10, len(images.labels) * 9 // 10]
        parts = np.split(np.arange(len(images.labels)), borders)
        return Splits(*(pixel_rows(images, rows) for rows in parts))


@dataclass(frozen=True, kw_only=True)
class LRARetrieval(Match):
    """The Long Range Arena's Retrieval at length 4000, with its splits."""

    name = "lra_retrieval"

    path: Path | None = None

    def load(self) -> Splits:
        found = read_own(self.name, self.path, "lra_aan")
        return Splits(*(self.part(found[name]) for name in ("train", "valid", "test")))


@dataclass(frozen=True, kw_only=True)
class Wikipedia(LanguageModelling):
    """Token = byte + 1. 90, 5 and 5 million bytes; of the last two samples of windows unless the sizes are larger."""

    vocab_size = BYTE_VOCABULARY

    path: Path | None = None
    length: int = 512  # tokens in a window
    valid_size: int = 512  # windows
    test_size: int = 10**9

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        sizes = {"valid_size": self.valid_size, "test_size": self.test_size}
        check_sizes(self.name, length=self.length, **sizes)

    @property
    def max_len(self) -> int:
        return self.length

    def load(self) -> Splits:
        found = read_own(self.name, self.path, self.name)
        rng = np.random.default_rng(self.seed)
        parts = []
        for name, size in (("train", None), ("valid", self.valid_size), ("test", self.test_size)):
            windows = cut(self.name, [found[name]], self.length)
            parts.append(Examples.windows(*sample(windows, size or len(windows.tokens), rng)))
        return Splits(*parts)


@dataclass(frozen=True, kw_only=True)
class Enwik8(Wikipedia):
    """Wikipedia's pages with their markup, in bits per byte."""

    name = "enwik8"


@dataclass(frozen=True, kw_only=True)
class Text8(Wikipedia):
    """Wikipedia's words in letters and spaces, in bits per letter: numbers do not compare with those of enwik8."""

    name = "text8"


@dataclass(frozen=True, kw_only=True)
class LabelledTexts(ByteText):
    """Texts of your own with a class each, saved by the `datasets` library: `text` and `label` name their columns.

    The splits are the folder's: train, validation, test. For one that is missing a tenth of the training part is drawn by
    `seed`. What begins as an earlier text does, in the bytes that are read, is left out.
    """

    name = "labelled_texts"
    num_classes: int = 2  # type: ignore[misc]  # an option here, a constant of the other tasks

    path: Path | None = None
    text: str = "text"
    label: str = "label"

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, length=self.length, num_classes=self.num_classes)

    def load(self) -> Splits:
        folder = own_path(self.name, self.path, "hugging_face")
        found = dict(read_columns(folder, text=self.text, label=self.label))
        whole = found.get("train") or found.get("all")
        if whole is None or len(whole.classes) != self.num_classes:
            held = "no part train" if whole is None else f"{len(whole.classes)} classes"
            raise OptionError(
                f"{self.name}: {folder} has {held}, and num_classes is {self.num_classes}"
            )
        valid, test = found.get("validation") or found.get("valid"), found.get("test")
        shares = (0.0 if valid else 0.1, 0.0 if test else 0.1)
        rows = stratified(whole.labels, *shares, self.seed)
        parts = [
            [(own.texts[row], own.labels[row]) for row in of]
            for own, of in (
                (whole, rows[0]),
                (valid, range(len(valid.texts))) if valid else (whole, rows[1]),
                (test, range(len(test.texts))) if test else (whole, rows[2]),
            )
        ]
        kept = apart(parts, key=lambda item: item[0][: self.length])
        return Splits(*map(self._part, kept))

    def _part(self, items: Sequence[tuple[bytes, int]]) -> Examples:
        labels = np.array([label for _, label in items], dtype=np.int64)
        return self.part([text for text, _ in items], labels, np.arange(len(items)))
