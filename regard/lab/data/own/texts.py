"""Texts from a user's own copy: labelled texts, pairs, ListOps, Wikipedia's bytes."""

import csv
import json
from io import StringIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from regard.core import MissingDataError, StoredDataError, UnknownNameError
from regard.lab.data.checks import need, need_file
from regard.lab.data.labelled import LabelledPairs, Texts, label
from regard.lab.data.listops import VOCABULARY, Expressions
from regard.lab.data.own.format import Parts
from regard.lab.data.pairs import read_parallel
from regard.lab.data.received import (
    LONGEST_LINE,
    MOST_CLASSES,
    check_labels,
    inside,
    lines_of,
    read_whole,
    text_of,
)

IMDB = "a folder with train/pos, train/neg, test/pos and test/neg, a review a .txt file (aclImdb)"


_IMDB_CLASSES = ("neg", "pos")


def read_imdb(path: Path) -> Parts:
    """IMDb reviews in the folders of the release (Maas et al. 2011), which are Long Range Arena's Text task too."""
    return {part: _review_folder(inside(path, part, IMDB)) for part in ("train", "test")}


def _review_folder(path: Path) -> Texts:
    texts, names = [], []
    for name in _IMDB_CLASSES:
        for file in sorted(inside(path, name, IMDB).glob("*.txt")):
            texts.append(read_whole(inside(path, f"{name}/{file.name}", IMDB), LONGEST_LINE))
            names.append(name)
        if name not in names:
            raise StoredDataError(f"{path / name} is empty: it holds no review. Expected: {IMDB}")
    return label(texts, names, _IMDB_CLASSES)


HUGGING_FACE = "a folder written by Dataset.save_to_disk or DatasetDict.save_to_disk"


def read_columns(path: Path, *, text: str = "text", label: str = "label") -> Parts:
    """Labelled texts saved to disk by the `datasets` library of Hugging Face (`save_to_disk`), which must be installed.

    The split names are those of the folder; a data set without splits is "all".

    Raises MissingDataError without the library, UnknownNameError for a column that is not there.
    """
    need(path, HUGGING_FACE)
    _check_saved(path)
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
        str(name): _column_texts(f"{path}, {name}", part, text, label)
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
            inside(record.parent, name, HUGGING_FACE)


def _column_texts(who: str, part: Any, text: str, label: str) -> Texts:
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


AAN = "a folder with new_aan_pairs.train.tsv, new_aan_pairs.eval.tsv and new_aan_pairs.test.tsv"


_AAN_COLUMNS = 5


_LONGEST_CELL = 2**30  # characters of a cell; csv's own limit is below the length of a paper


def read_aan(path: Path) -> Parts:
    """Pairs of papers as Long Range Arena released them from the ACL Anthology: label, two names and two texts, tabs between."""
    files = {"train": "train", "valid": "eval", "test": "test"}
    return {
        part: _pairs_table(inside(path, f"new_aan_pairs.{name}.tsv", AAN))
        for part, name in files.items()
    }


def _pairs_table(path: Path) -> LabelledPairs:
    first: list[bytes] = []
    second: list[bytes] = []
    labels: list[int] = []
    before = csv.field_size_limit(_LONGEST_CELL)
    try:
        table = csv.reader(StringIO(text_of(path), newline=""), delimiter="\t")
        for row in table:
            if len(row) != _AAN_COLUMNS or row[0] not in ("0", "1", "0.0", "1.0"):
                raise StoredDataError(
                    f"{path}, line {table.line_num}: expected a label (0 or 1), two names and two texts, "
                    f"got {len(row)} columns that begin with {(row or [''])[0][:60]!r}"
                )
            labels.append(int(float(row[0])))
            first.append(row[3].encode())
            second.append(row[4].encode())
    except csv.Error as error:
        raise StoredDataError(f"{path}, line {table.line_num}: {error}") from None
    finally:
        csv.field_size_limit(before)
    return LabelledPairs(first, second, check_labels(str(path), labels, 2))


_ID = {token: number for number, token in enumerate(VOCABULARY)}


_DROPPED = {"(", ")"}


LISTOPS = "a folder with basic_train.tsv, basic_val.tsv and basic_test.tsv"


def read_listops(path: Path) -> Parts:
    """ListOps as Long Range Arena released it (Tay et al. 2021, arXiv 2011.04006): tables `Source <tab> Target`.

    Sources are written with round brackets around every pair, which mean nothing and are dropped, as the release's own reader
    does. What remains is the language that `regard.lab.data.listops` generates.
    """
    files = {"train": "train", "valid": "val", "test": "test"}
    return {
        part: _listops_table(inside(path, f"basic_{name}.tsv", LISTOPS))
        for part, name in files.items()
    }


def _listops_table(path: Path) -> Expressions:
    sources, values = [], []
    for number, line in islice(lines_of(path), 1, None):
        source, tab, target = line.partition("\t")
        words = [word for word in source.split() if word not in _DROPPED]
        unknown = [word for word in words if word not in _ID]
        if not tab or not words or unknown or target.strip() not in tuple("0123456789"):
            why = (
                f"unknown {unknown[0][:60]!r}"
                if unknown
                else "expected an expression, a tab and a digit"
            )
            raise StoredDataError(f"{path}, line {number}: {why}")
        sources.append(np.array([_ID[word] for word in words], dtype=np.int32))
        values.append(int(target))
    lengths = np.array([len(source) for source in sources], dtype=np.int64)
    labels = check_labels(str(path), values, 10)
    return Expressions(np.concatenate(sources), lengths, labels)


TEXT_FILES = "a folder with two files train.*, such as train.en and train.de, and so for valid and test if you have these"


def read_text_files(path: Path) -> Parts:
    """Two files of which line n translates line n, as WMT's: `regard.lab.data.pairs` reads them.

    Pairs in the order of the files' names; the task's options name the source side.
    """
    found = {
        part: sorted(need(path, TEXT_FILES).glob(f"{part}.*"))
        for part in ("train", "valid", "test")
    }
    for part, files in found.items():
        if len(files) != 2 and (files or part == "train"):
            raise StoredDataError(f"{path} has {len(files)} files {part}.*. Expected: {TEXT_FILES}")
    return {
        part: read_parallel(*(inside(path, file.name, TEXT_FILES) for file in files))
        for part, files in found.items()
        if files
    }


def count_pairs(pairs: list) -> dict[str, int]:
    return {"pairs": len(pairs)}


ENWIK8 = "the file enwik8, unpacked: 100,000,000 bytes that begin with <mediawiki"


WIKIPEDIA_BYTES = 100_000_000


def read_enwik8(path: Path) -> Parts:
    """enwik8 (Mahoney 2006): one file of 100 million bytes, the first 90 for training, 5 each for validation and test."""
    text = _whole(path, ENWIK8)
    if not text.startswith(b"<mediawiki"):
        raise StoredDataError(f"{path} begins with {text[:10]!r}. Expected: {ENWIK8}")
    return wikipedia_parts(text)


def _whole(path: Path, layout: str) -> bytes:
    """A file of WIKIPEDIA_BYTES bytes."""
    if need_file(path, layout).stat().st_size != WIKIPEDIA_BYTES:
        raise StoredDataError(f"{path} has {path.stat().st_size} bytes. Expected: {layout}")
    return read_whole(path)


def wikipedia_parts(text: bytes) -> Parts:
    """Nine tenths, and twice a twentieth, in this order."""
    first, second = len(text) * 90 // 100, len(text) * 95 // 100
    return {"train": text[:first], "valid": text[first:second], "test": text[second:]}


TEXT_FILE = "a file of any text, of which the first nine tenths train"


def read_text_file(path: Path) -> Parts:
    return wikipedia_parts(read_whole(need_file(path, TEXT_FILE)))


TEXT8 = "the file text8, unpacked: 100,000,000 bytes, a to z and spaces only"


_LETTERS = b" abcdefghijklmnopqrstuvwxyz"


def read_text8(path: Path) -> Parts:
    """text8 (Mahoney 2006): 100 million letters and spaces of Wikipedia, cut as enwik8 is."""
    text = _whole(path, TEXT8)
    if other := text.translate(None, _LETTERS):
        raise StoredDataError(f"{path} holds {other[:10]!r}. Expected: {TEXT8}")
    return wikipedia_parts(text)
