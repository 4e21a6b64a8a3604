"""Files of one's own: a text, pairs of texts, labelled texts, a table. Every fault is named with its file and line.

>>> OWN["delimited_texts"].read(Path("reviews.csv"))["all"].texts

`regard data show NAME --path PATH` counts what a file holds.
"""

import csv
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import StringIO
from itertools import zip_longest
from pathlib import Path
from typing import Any

import numpy as np

from regard.core import Catalog, MissingDataError, OptionError, StoredDataError, UnknownNameError
from regard.lab.data.checks import need, need_file
from regard.lab.data.labelled import Texts, label as labelled
from regard.lab.data.received import (
    LONGEST_LINE,
    MOST_CLASSES,
    check_labels,
    inside,
    lines_of,
    read_whole,
    text_of,
)

Parts = Mapping[str, Any]
"""Name of a split, as the files have it, to Texts, bytes, pairs of texts or columns."""

DELIMITED = "a .csv or .tsv file in UTF-8 whose first line names the columns"
SAVED = "a folder written by Dataset.save_to_disk or DatasetDict.save_to_disk"
TEXT_FILE = "a file of any text, of which the first nine tenths train"
TEXT_FILES = "a folder with two files train.*, such as train.en and train.de, and so for valid and test if you have these"


def read_delimited(path: Path) -> dict[str, list[str]]:
    """Column -> its cells; fields of a .tsv file are separated by tabs, of any other by commas.

    Raises MissingDataError, StoredDataError naming the line.
    """
    need_file(path, DELIMITED)
    before = csv.field_size_limit(LONGEST_LINE)
    try:
        table = csv.reader(
            StringIO(text_of(path), newline=""), delimiter="\t" if path.suffix == ".tsv" else ","
        )
        names = [name.strip().removeprefix("\ufeff") for name in next(table, [])]
        if len(set(names)) != len(names) or not all(names):
            raise StoredDataError(
                f"{path}, line 1: the columns need a name each. Expected: {DELIMITED}"
            )
        rows = []
        for row in filter(None, table):
            if len(row) != len(names):
                raise StoredDataError(
                    f"{path}, line {table.line_num}: {len(row)} cells under {len(names)} columns"
                )
            rows.append(row)
    except csv.Error as error:
        raise StoredDataError(f"{path}, line {table.line_num}: {error}") from None
    finally:
        csv.field_size_limit(before)
    if not rows:
        raise StoredDataError(f"{path} is empty: it holds no row. Expected: {DELIMITED}")
    return dict(zip(names, map(list, zip(*rows, strict=True)), strict=True))


def column(table: Mapping[str, list[str]], name: str) -> list[str]:
    if name not in table:
        raise UnknownNameError("column", name, table)
    return table[name]


def is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False


def read_delimited_texts(path: Path, *, text: str = "text", label: str = "label") -> Parts:
    """Texts with a class each; the classes are the words in the column `label`, in the order of the alphabet."""
    table = read_delimited(path)
    texts, names = column(table, text), column(table, label)
    found = labelled([words.encode() for words in texts], names)
    check_labels(str(path), found.labels, len(found.classes))
    return {"all": found}


def read_saved(path: Path, *, text: str = "text", label: str = "label") -> Parts:
    """Labelled texts saved to disk by the `datasets` library, which must be installed; without splits they are "all".

    Raises MissingDataError without the library, UnknownNameError for a column that is not there.
    """
    _check_saved(need(path, SAVED))
    try:
        import datasets
    except ImportError:
        raise MissingDataError(
            f"{path} is read by the package datasets, which is not installed: `pip install datasets`"
        ) from None
    try:
        found = datasets.load_from_disk(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise StoredDataError(f"{path} is no saved data set: {error}") from None
    parts = found if isinstance(found, dict) else {"all": found}
    return {
        str(name): _saved_texts(f"{path}, {name}", part, text, label)
        for name, part in parts.items()
    }


def _check_saved(path: Path) -> None:
    """No name in the library's own records leads out of the folder."""
    records = [path / "dataset_dict.json", *path.glob("state.json"), *path.glob("*/state.json")]
    for record in filter(Path.is_file, records):
        try:
            said = json.loads(text_of(record))
            names = [*said.get("splits", ()), *(f["filename"] for f in said.get("_data_files", ()))]
        except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
            raise StoredDataError(f"{record} is no record of a data set: {error}") from None
        for name in map(str, names):
            inside(record.parent, name, SAVED)


def _saved_texts(who: str, part: Any, text: str, label: str) -> Texts:
    for name in (text, label):
        if name not in part.column_names:
            raise UnknownNameError("column", name, part.column_names)
    names = getattr(part.features[label], "names", None)
    numbers = check_labels(who, list(part[label]), len(names) if names else MOST_CLASSES)
    classes = names or [str(number) for number in range(int(numbers.max()) + 1)]
    texts = []
    for place, words in enumerate(part[text]):
        if not isinstance(words, str):
            raise StoredDataError(f"{who}, item {place}: {words!r} in the place of a text")
        texts.append(words.encode())
    return Texts(texts, numbers, tuple(classes))


def read_text_file(path: Path) -> Parts:
    """Nine tenths, and twice a twentieth, in this order."""
    text = read_whole(need_file(path, TEXT_FILE))
    first, second = len(text) * 90 // 100, len(text) * 95 // 100
    return {"train": text[:first], "valid": text[first:second], "test": text[second:]}


def read_text_files(path: Path) -> Parts:
    """Pairs in the order of the files' names."""
    found = {}
    for part in ("train", "valid", "test"):
        files = sorted(need(path, TEXT_FILES).glob(f"{part}.*"))
        if len(files) != 2 and (files or part == "train"):
            raise StoredDataError(f"{path} has {len(files)} files {part}.*. Expected: {TEXT_FILES}")
        if files:
            found[part] = read_parallel(*(inside(path, file.name, TEXT_FILES) for file in files))
    return found


def read_parallel(source: Path, target: Path) -> list[tuple[str, str]]:
    """Two files, a sentence a line, line n of one translating line n of the other; empty lines are left out.

    Raises MissingDataError where a file is missing, StoredDataError where one is longer or empty or is not UTF-8.
    """
    for path in (source, target):
        need_file(path, "a text file, a sentence a line")
    pairs = []
    for left, right in zip_longest(lines_of(source), lines_of(target)):
        if left is None or right is None:
            ended, other = (source, target) if left is None else (target, source)
            number, _ = left or right or (1, "")
            raise StoredDataError(
                f"{ended} ends after {number - 1} lines, and {other} goes on: they are no parallel files"
            )
        pair = (" ".join(left[1].split()), " ".join(right[1].split()))
        if all(pair):
            pairs.append(pair)
    if not pairs:
        raise StoredDataError(f"{source} and {target} are empty: they hold no pair")
    return pairs


@dataclass(frozen=True)
class Format:
    """The layout of files of one's own, and the function that reads them."""

    name: str
    about: str
    layout: str  # what the path must hold
    read: Callable[[Path], Parts]

    def sizes(self, path: Path) -> dict[str, dict[str, int]]:
        """Split -> what it holds and how many. Raises MissingDataError, StoredDataError."""
        return {name: _size(part) for name, part in self.read(path).items()}


def _size(part: Any) -> dict[str, int]:
    if isinstance(part, Texts):
        return {"items": len(part.labels), "classes": len(part.classes)}
    if isinstance(part, dict):
        return {"rows": len(next(iter(part.values()))), "columns": len(part)}
    return {"bytes" if isinstance(part, bytes) else "pairs": len(part)}


OWN: Catalog[Format] = Catalog(
    "format",
    (
        Format("hugging_face", "labelled texts saved by the datasets library", SAVED, read_saved),
        Format(
            "delimited_texts",
            "labelled texts, in the columns text and label",
            DELIMITED,
            read_delimited_texts,
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


def own_path(who: str, path: Path | str | None, form: str) -> Path:
    """The user's path. Raises OptionError, which names the expected files, where none is given."""
    if not path:
        raise OptionError(f"{who}: path must name your own: {OWN[form].layout}")
    return Path(path).expanduser()
