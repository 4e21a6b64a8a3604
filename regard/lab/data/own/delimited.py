"""CSV and TSV files of a user's own, with a header line."""

import csv
from io import StringIO
from pathlib import Path

import numpy as np

from regard.core import StoredDataError, UnknownNameError
from regard.lab.data.checks import need_file
from regard.lab.data.labelled import label as labelled
from regard.lab.data.own.format import Parts
from regard.lab.data.received import LONGEST_LINE, check_labels, text_of

DELIMITED = "a .csv or .tsv file in UTF-8 whose first line names the columns"


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
        for row in table:
            if not row:
                continue
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


def column(table: dict[str, list[str]], name: str) -> list[str]:
    if name not in table:
        raise UnknownNameError("column", name, table)
    return table[name]


def read_delimited_texts(path: Path, *, text: str = "text", label: str = "label") -> Parts:
    """Texts with a class each; the classes are the words in the column `label`, in the order of the alphabet."""
    table = read_delimited(path)
    texts, names = column(table, text), column(table, label)
    found = labelled([words.encode() for words in texts], names)
    check_labels(str(path), found.labels, len(found.classes))
    return {"all": found}


def is_number(cell: str) -> bool:
    try:
        return bool(np.isfinite(float(cell)))
    except ValueError:
        return False
