"""Files of one's own: a text, pairs of texts, labelled texts, a table. Every fault is named with its file and line.

>>> OWN["delimited_texts"].read(Path("reviews.csv"))["all"].texts

`regard data show NAME --path PATH` counts what a file holds.
"""

import csv
from collections.abc import Callable, Mapping
from io import StringIO
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from regard.core import Catalog, MissingDataError, OptionError, StoredDataError, UnknownNameError
from regard.core.files import plain, reported
from regard.lab.data.pairs import Pair
from regard.lab.data.records import Integers

DELIMITED = "a .csv or .tsv file in UTF-8 whose first line names the columns"
TEXT_FILE = "a file of any text, of which the first nine tenths train"
TEXT_FILES = "a folder with two files train.*, such as train.en and train.de, and so for valid and test if you have these"
LONGEST_CELL = 2**24  # characters


class Texts(NamedTuple):
    texts: list[bytes]
    labels: Integers  # [n], numbers of `classes`
    classes: list[str]


def need(path: Path, layout: str) -> Path:
    """The path, if it is there. Raises MissingDataError, which names the expected layout."""
    if not path.exists():
        raise MissingDataError(f"there is no {path}. Expected: {layout}")
    return path


def read_whole(path: Path, layout: str) -> bytes:
    """The bytes of a regular file. Raises MissingDataError, and StoredDataError for a folder, a device or a pipe."""
    with reported(path, "read"):
        if not need(path, layout).is_file():
            found = "a folder" if path.is_dir() else "no regular file"
            raise StoredDataError(f"{path} is {found}. Expected: {layout}")
        return plain(path).read_bytes()


def text_of(path: Path, layout: str) -> str:
    """The same as text. Raises StoredDataError, with the line, where it is not UTF-8."""
    content = read_whole(path, layout)
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        raise StoredDataError(f"{path}, line {line}: not UTF-8 ({error.reason})") from None


def read_delimited(path: Path) -> dict[str, list[str]]:
    """Column -> its cells; fields of a .tsv file are separated by tabs, of any other by commas.

    Raises MissingDataError, StoredDataError naming the line.
    """
    text = StringIO(text_of(path, DELIMITED), newline="")
    before = csv.field_size_limit(LONGEST_CELL)
    table = csv.reader(text, delimiter="\t" if path.suffix.lower() == ".tsv" else ",", strict=True)
    begun = 0  # lines before the row that is read
    try:
        names = [name.strip() for name in next(table, [])]
        if len(set(names)) != len(names) or not all(names):
            raise StoredDataError(
                f"{path}, line 1: the columns need a name each. Expected: {DELIMITED}"
            )
        rows = []
        begun = table.line_num
        for row in filter(None, table):
            if len(row) != len(names):
                raise StoredDataError(
                    f"{path}, line {table.line_num}: {len(row)} cells under {len(names)} columns"
                )
            rows.append(row)
            begun = table.line_num
    except csv.Error as error:
        raise StoredDataError(f"{path}, line {begun + 1}: {error}") from None
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise StoredDataError(f"{path} is empty: it holds no row. Expected: {DELIMITED}")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def column(table: Mapping[str, list[str]], name: str) -> list[str]:
    if name not in table:
        raise UnknownNameError("column", name, table)
    return table[name]


def read_labelled(path: Path, *, text: str = "text", label: str = "label") -> Texts:
    """Texts with a class each; the classes are the words in the column `label`, in the order of the alphabet. Rows without one are left out."""
    table = read_delimited(path)
    pairs = zip(column(table, text), column(table, label), strict=True)
    labelled = [(words.encode(), name) for words, name in pairs if name]
    names = np.array([name for _, name in labelled], object)
    classes, labels = np.unique(names, return_inverse=True)
    return Texts([words for words, _ in labelled], labels, classes.tolist())


def read_text_file(path: Path) -> dict[str, bytes]:
    """Nine tenths, and twice a twentieth, in this order."""
    text = read_whole(path, TEXT_FILE)
    first = len(text) * 90 // 100
    second = len(text) * 95 // 100
    return {"train": text[:first], "valid": text[first:second], "test": text[second:]}


def read_text_files(path: Path) -> dict[str, list[Pair]]:
    """Pairs in the order of the files' names; for "train" alone, or for "valid" and "test" too."""
    with reported(path, "read"):
        there = sorted(need(path, TEXT_FILES).iterdir())
    found = {}
    languages = list[str]()
    for part in ("train", "valid", "test"):
        files = [one for one in there if one.name.startswith(f"{part}.")]
        if len(files) != 2 and (files or part == "train"):
            raise StoredDataError(f"{path} has {len(files)} files {part}.*. Expected: {TEXT_FILES}")
        if files:
            endings = [one.name.removeprefix(part) for one in files]
            languages = languages or endings
            if endings != languages:
                raise StoredDataError(
                    f"{path} has {part}{' and '.join(endings)} beside train{' and '.join(languages)}: name both sides alike in every part"
                )
            found[part] = read_parallel(*files)
    if len(found) == 2:
        raise StoredDataError(f"{path} needs both valid.* and test.*, or neither")
    return found


def read_parallel(source: Path, target: Path) -> list[Pair]:
    """Two files, a sentence a line, line n of one translating line n of the other; empty lines are left out.

    Raises MissingDataError where a file is missing, StoredDataError where one is longer or empty or is not UTF-8.
    """
    sides = [
        text_of(path, "a text file, a sentence a line").removesuffix("\n").split("\n")
        for path in (source, target)
    ]
    if len(sides[0]) != len(sides[1]):
        raise StoredDataError(
            f"{source} has {len(sides[0])} lines, and {target} {len(sides[1])}: they are no parallel files"
        )
    lines = ([" ".join(line.split()) for line in side] for side in sides)
    pairs = [Pair(one, other, one) for one, other in zip(*lines, strict=True) if one and other]
    if not pairs:
        raise StoredDataError(f"{source} and {target} are empty: they hold no pair")
    return pairs


class Format(NamedTuple):
    """The layout of files of one's own, and the function that reads them."""

    name: str
    about: str
    layout: str  # what the path must hold
    read: Callable[[Path], Mapping[str, Any]]  # name of a split -> Texts, bytes, pairs or columns

    def sizes(self, path: Path) -> dict[str, dict[str, int]]:
        """Split -> what it holds and how many. Raises MissingDataError, StoredDataError."""
        return {name: _size(part) for name, part in self.read(path).items()}


def _size(part: Any) -> dict[str, int]:
    if isinstance(part, Texts):
        return {"items": len(part.labels), "classes": len(part.classes)}
    if isinstance(part, dict):
        return {"rows": len(next(iter(part.values()))), "columns": len(part)}
    return {"bytes" if isinstance(part, bytes) else "pairs": len(part)}


OWN = Catalog(
    "format",
    (
        Format(
            "delimited_texts",
            "labelled texts, in the columns text and label",
            DELIMITED,
            lambda path: {"all": read_labelled(path)},
        ),
        Format(
            "table",
            "rows of a table, one of whose columns is to be predicted",
            DELIMITED,
            lambda path: {"all": read_delimited(path)},
        ),
        Format(
            "text_file",
            "any text, for the next byte of it: nine tenths train",
            TEXT_FILE,
            read_text_file,
        ),
        Format("text_files", "translations, a sentence a line", TEXT_FILES, read_text_files),
    ),
)


def own_path(task: Any, form: str) -> Path:
    """The path of the task's option. Raises OptionError, which names the expected files, where none is given."""
    if not task.path:
        raise OptionError(f"{task.name}: path must name your own: {OWN[form].layout}")
    return task.path.expanduser()
