"""Pairs of papers as Long Range Arena released them from the ACL Anthology: label, two names and two texts, tabs between."""

import csv
from io import StringIO
from pathlib import Path

import numpy as np

from regard.core import StoredDataError
from regard.lab.data.checks import need
from regard.lab.data.labelled import TextPairs
from regard.lab.data.own.format import Format, Parts, text_of

LAYOUT = "a folder with new_aan_pairs.train.tsv, new_aan_pairs.eval.tsv and new_aan_pairs.test.tsv"
_COLUMNS = 5
_LONGEST = 2**30  # characters of a cell; csv's own limit is below the length of a paper


def read(path: Path) -> Parts:
    files = {"train": "train", "valid": "eval", "test": "test"}
    return {
        part: _table(need(path / f"new_aan_pairs.{name}.tsv", LAYOUT))
        for part, name in files.items()
    }


def _table(path: Path) -> TextPairs:
    first: list[bytes] = []
    second: list[bytes] = []
    labels: list[int] = []
    before = csv.field_size_limit(_LONGEST)
    try:
        for row in csv.reader(StringIO(text_of(path), newline=""), delimiter="\t"):
            if len(row) != _COLUMNS or row[0] not in ("0", "1", "0.0", "1.0"):
                raise StoredDataError(
                    f"{path}, row {len(labels) + 1}: expected a label (0 or 1), two names and two texts, "
                    f"got {len(row)} columns that begin with {row[:1]}"
                )
            labels.append(int(float(row[0])))
            first.append(row[3].encode())
            second.append(row[4].encode())
    finally:
        csv.field_size_limit(before)
    return TextPairs(first, second, np.array(labels, dtype=np.int64))


FORMAT = Format(
    name="lra_aan",
    about="Long Range Arena, Retrieval: does one paper cite the other",
    layout=LAYOUT,
    read=read,
)
