"""Criteo's display advertising data from a copy that the user has: label, 13 counts, 26 hashed categories, tabs between them.

count -> floor(log(x)^2) where x > 2, as the winners of the challenge did and AutoInt does (arXiv 1810.11921, section 5.1)
"""

import math
from itertools import islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.core import StoredDataError
from regard.lab.data.checks import need_file

COUNTS, CATEGORIES = 13, 26
LAYOUT = (
    "the file train.txt: a label (0 or 1), 13 counts and 26 categories a line, tabs between them"
)


def read_criteo(
    path: Path, *, max_rows: int | None = None
) -> tuple[dict[str, list], NDArray[np.floating]]:
    """Columns I1 .. I13 and C1 .. C26, and the labels. Raises MissingDataError, StoredDataError naming the line."""
    need_file(path, LAYOUT)
    rows: list[list[str]] = []
    with path.open() as file:
        for number, line in enumerate(islice(file, max_rows), 1):
            row = line.rstrip("\n").split("\t")
            if len(row) != 1 + COUNTS + CATEGORIES or row[0] not in ("0", "1"):
                raise StoredDataError(
                    f"{path}, line {number}: a label (0 or 1), {COUNTS} counts and {CATEGORIES} categories were "
                    f"expected, got {len(row)} columns that begin with {row[0]!r}"
                )
            rows.append(row)
    if not rows:
        raise StoredDataError(f"{path} is empty")
    label, *columns = zip(*rows, strict=True)
    fields: dict[str, list] = {
        f"I{i}": [_number(cell) for cell in column] for i, column in enumerate(columns[:COUNTS], 1)
    }
    for i, column in enumerate(columns[COUNTS:], 1):
        fields[f"C{i}"] = [cell or None for cell in column]
    return fields, np.array(label, dtype=float)


def _number(cell: str) -> float:
    if not cell:
        return math.nan
    x = float(cell)
    return float(math.floor(math.log(x) ** 2)) if x > 2 else x
