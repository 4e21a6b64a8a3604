"""Schema: the fields of a table, and how its columns become ids and numbers.

>>> schema = Schema.infer(table, train=slice(0, 800), of={"history": "item"})
>>> schema.encode(table)        # {"item": long [N], "age": float [N], "history": long [N, T]}

A table is a dict of columns of equal length, or a pandas DataFrame. Vocabularies, and the mean and deviation by which
numbers are scaled, come from the training rows alone. None and NaN are missing.
"""

import math
from collections import Counter
from collections.abc import Collection, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from numbers import Number, Real
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.core import (
    OptionError,
    ShapeError,
    UnknownNameError,
    check_option,
    check_positive,
    is_dense,
    shown,
)
from regard.lab.data.records import Column, Ragged, Records
from regard.nn.fields import (
    FIRST_KNOWN,
    MISSING,
    UNKNOWN,
    Categorical,
    Field,
    Fields,
    Numeric,
    Occurrences,
    Sequence,
)

FARTHEST = 1e6
"""Deviations from the mean beyond which a number counts as this one, so that its square is finite in float32."""

Columns = Mapping[str, Any]


@dataclass(frozen=True, eq=False)
class Schema:
    """The fields of a table, learned from its training rows: ids of values, their counts, means and deviations of numbers."""

    fields: Fields
    ids: Mapping[str, Mapping[Hashable, int]]  # vocabulary -> value -> id
    counts: Occurrences  # in the training rows, by id
    scales: Mapping[str, tuple[float, float]]  # numeric field -> mean, deviation

    @classmethod
    def infer(
        cls,
        table: Columns,
        *,
        train: slice | Collection[int] | None = None,
        of: Mapping[str, str] | None = None,
        numeric: Collection[str] | None = None,
        min_count: int = 1,
    ) -> "Schema":
        """Columns of lists become a Sequence, of floats a Numeric, all others (integers too) a Categorical.

        train: rows that are learned from (default: all). of: sequence -> the column whose vocabulary it shares.
        numeric: names of the numeric columns, where they are not those of floats. min_count: rarer values are unknown.
        Raises UnknownNameError, OptionError and ShapeError.
        """
        check_positive(min_count=min_count)
        check_option("Schema", "of", of := {} if of is None else of, Mapping[str, str])
        check_option("Schema", "train", train, slice | Collection[Any] | None)
        check_option("Schema", "numeric", numeric, Collection[str] | None)
        columns = _columns(table, column_names(table))
        for name, column in columns.items():
            _check_no_dates(name, table[name], column)
        for name in (*of, *of.values(), *(numeric or ())):
            if name not in columns:
                raise UnknownNameError("column", name, columns)
        kinds = {name: _kind(name, column, numeric) for name, column in columns.items()}
        for name, source in of.items():
            if kinds[name] != "sequence" or kinds[source] != "categorical":
                raise OptionError(
                    f"of: {name!r} is {kinds[name]} and {source!r} is {kinds[source]}; a sequence shares the vocabulary of a categorical column"
                )
        seen = dict[str, Counter]()
        scales = {}
        rows = _rows(train, range(len(next(iter(columns.values())))))
        for name, column in columns.items():
            part = [column[row] for row in rows]
            if kinds[name] == "numeric":
                scales[name] = _scale(name, part)
            else:
                values = _values(name, part, kinds[name])
                seen.setdefault(of.get(name, name), Counter()).update(values)
        ids = {}
        counts = {}
        for name, counter in seen.items():
            known = {value: count for value, count in counter.items() if count >= min_count}
            ids[name] = _numbered(known)
            rare = counter.total() - sum(known.values())
            counts[name] = torch.tensor([0, rare, *known.values()])
        fields = tuple(_field(name, kinds[name], of.get(name, name), ids) for name in columns)
        return cls(fields, ids, counts, scales)

    def encode(self, table: Columns) -> dict[str, Tensor]:
        """Name -> tensor, as models take it; sequences are padded to the longest, or to 1, with the missing id."""
        rows = Records(self.columns(table))
        return rows.gather(range(len(rows)))

    def columns(self, table: Columns) -> dict[str, Column]:
        """The same without padding, as Records keep it. Raises ShapeError for a column that is missing."""
        given = column_names(table)
        wanted = [field.name for field in self.fields]
        for name in wanted:
            if name not in given:
                raise ShapeError(f"the table has no column {name!r}")
        columns = _columns(table, wanted)
        return {field.name: self._encoded(field, columns[field.name]) for field in self.fields}

    def plain(self) -> dict[str, Any]:
        """The facts that were learned of the fields, as JSON values; OptionError where a vocabulary holds other values than words, numbers and truth values."""
        for name, ids in self.ids.items():
            for value in ids:
                if not isinstance(value, str | int | float):
                    raise OptionError(
                        f"vocabulary {name!r} holds {value!r} of type {type(value).__name__}: only words, numbers and truth values can be stored"
                    )
        return {
            "values": {name: list(ids) for name, ids in self.ids.items()},
            "counts": {name: counts.tolist() for name, counts in self.counts.items()},
            "scales": self.scales,
        }

    @classmethod
    def of_plain(cls, fields: Fields, plain: Mapping[str, Any]) -> "Schema":
        """The schema of these fields whose `plain()` this is."""
        return cls(
            fields,
            {name: _numbered(values) for name, values in plain["values"].items()},
            {name: torch.tensor(counts) for name, counts in plain["counts"].items()},
            {name: (mean, deviation) for name, (mean, deviation) in plain["scales"].items()},
        )

    def _encoded(self, field: Field, column: list) -> Column:
        if isinstance(field, Numeric):
            mean, deviation = self.scales[field.name]
            scaled = (_numbers(field.name, column) - mean) / deviation
            return scaled.clip(-FARTHEST, FARTHEST).astype(np.float32)
        _values(field.name, column, type(field).__name__.lower())
        ids = {None: MISSING, **self.ids[field.of.name]}
        if isinstance(field, Categorical):
            return np.array([ids.get(cell, UNKNOWN) for cell in column], np.int32)
        rows = (_members(field.name, cell) for cell in column)
        return Ragged.of([[ids.get(value, UNKNOWN) for value in row] for row in rows])


def column_names(table: Columns) -> list[str]:
    """Raises ShapeError for what is no table, and for one without columns."""
    if not (isinstance(table, Mapping) or hasattr(table, "columns")):
        raise ShapeError(
            f"a table is a dict of columns or a pandas DataFrame, got {type(table).__name__}"
        )
    names = list(table)
    if not names:
        raise ShapeError("a table must have at least one column")
    if twice := [name for name in names if names.count(name) > 1]:
        raise ShapeError(f"a table must have a name for each column, and has two {twice[0]!r}")
    return names


def row_count(name: str, column: Any) -> int:
    """Raises ShapeError for what does not hold a value for each row."""
    if isinstance(column, Tensor) and not (is_dense(column) and not column.is_meta):
        raise ShapeError(f"{name!r} must be a dense tensor with values, got {shown(column)}")
    if not isinstance(column, str | bytes | Mapping):
        with suppress(TypeError):  # len() of a scalar
            return len(column)
    raise ShapeError(f"{name!r} must hold a value for each row, got {type(column).__name__}")


def cells(name: str, column: Any) -> list:
    """Python's own values, which are hashed faster than an array's and can be stored; None where one is missing."""
    row_count(name, column)
    values = column.tolist() if hasattr(column, "tolist") else list(column)
    if set(map(type, values)) <= {str, int, bool}:
        return values
    return [None if is_missing(value) else value for value in values]


def _columns(table: Columns, names: Collection[str]) -> dict[str, list]:
    columns = {name: cells(name, table[name]) for name in names}
    lengths = {name: len(column) for name, column in columns.items()}
    if len(set(lengths.values())) != 1:
        raise ShapeError(f"columns must be of equal length, got {lengths}")
    return columns


def _rows(train: slice | Collection[int] | None, every: range) -> Collection[int]:
    """The rows that are learned from."""
    rows: Any = train
    if isinstance(train, slice | None):
        rows = (train,)  # where it is none of whole numbers
        with suppress(TypeError, ValueError):
            rows = every[train or slice(None)]
    none = train is not None and not len(rows)
    if none or not all(
        isinstance(row, int | np.integer) and type(row) is not bool and 0 <= row < len(every)
        for row in rows
    ):
        raise OptionError(
            f"Schema: train must hold numbers of rows from 0 to {len(every) - 1}, got {shown(train)}"
        )
    return rows


def _numbered(values: Collection) -> dict[Hashable, int]:
    return {value: FIRST_KNOWN + place for place, value in enumerate(values)}


def _field(name: str, kind: str, vocabulary: str, ids: Mapping[str, Mapping]) -> Field:
    if kind == "numeric":
        return Numeric(name)
    of = Categorical(vocabulary, FIRST_KNOWN + len(ids[vocabulary]))
    return of if kind == "categorical" else Sequence(name, of)


def _kind(name: str, column: list, numeric: Collection[str] | None) -> str:
    kinds = set(map(type, column)) - {type(None)}
    if not kinds:
        raise OptionError(f"column {name!r} holds nothing: leave it out")
    lists = [issubclass(kind, _LISTS) for kind in kinds]
    if any(lists):
        if not all(lists):
            raise OptionError(f"column {name!r} holds lists in some rows only")
        if name in (numeric or ()):
            raise OptionError(f"numeric: column {name!r} holds lists, which are no numbers")
        return "sequence"
    if odd := [one for one in kinds if issubclass(one, Number) and not issubclass(one, Real)]:
        raise OptionError(f"column {name!r} holds numbers of type {odd[0].__name__}: give floats")
    if numeric is not None:
        return "numeric" if name in numeric else "categorical"
    return "numeric" if all(issubclass(kind, _FLOATS) for kind in kinds) else "categorical"


def _check_no_dates(name: str, given: Any, column: list) -> None:
    """Raise OptionError for dates and times: every one would be a category of its own."""
    kind = getattr(getattr(given, "dtype", None), "kind", "")
    known = [cell for cell in column if cell is not None]
    dated = [cell for cell in known if isinstance(cell, _DATES)]
    if dated or kind in ("M", "m") or _distinct_iso_dates(known):
        shown = [*dated, *known, None][0]
        raise OptionError(
            f"column {name!r} holds dates or times ({shown}): each would be a category of its own. Replace it by numbers, "
            f"the days since one of them say, or by parts such as month, weekday and hour, as columns of their own"
        )


def _distinct_iso_dates(words: list) -> bool:
    """True if all words are ISO 8601 dates and most of them differ."""
    if len(words) < 2 or not all(isinstance(word, str) and len(word) >= 8 for word in words):
        return False
    try:
        for word in words:
            datetime.fromisoformat(word)
    except ValueError:
        return False
    return 2 * len(set(words)) > len(words)


def _values(name: str, column: list, kind: str) -> list:
    """The values in the cells, without missing ones. Raises OptionError for what cannot be one."""
    if kind == "sequence":
        column = [value for cell in column for value in _members(name, cell)]
    known = [
        value.item() if isinstance(value, np.generic) else value
        for value in column
        if value is not None
    ]
    for cls, value in {type(value): value for value in reversed(known)}.items():
        if issubclass(cls, _LISTS):
            raise OptionError(f"column {name!r} holds single values, and {value!r} is none")
        if cls.__hash__ is None:
            raise OptionError(f"column {name!r} holds {value!r}, which cannot be a value")
    return known


def _members(name: str, cell: Any) -> list:
    if not isinstance(cell, (*_LISTS, type(None))):
        raise OptionError(f"column {name!r} holds lists in some rows only: {cell!r} is none")
    return [] if cell is None else cells(name, cell)


def _numbers(name: str, column: list) -> NDArray[np.floating]:
    """NaN where one is missing. Raises OptionError for what is no number, or infinite."""
    found = np.full(len(column), np.nan)
    for place, cell in enumerate(column):
        if cell is not None:
            try:
                found[place] = cell.replace("_", "no digit") if isinstance(cell, str) else cell
            except (TypeError, ValueError, OverflowError):
                raise OptionError(f"column {name!r} holds {cell!r}, which is no number") from None
    if np.isinf(found).any():
        raise OptionError(f"column {name!r} holds inf: numbers must be finite, or None")
    return found


def _scale(name: str, column: list) -> tuple[float, float]:
    numbers = _numbers(name, column)
    numbers = numbers[~np.isnan(numbers)]
    if not len(numbers):
        return 0.0, 1.0
    if (numbers == numbers[0]).all():  # of whose deviation rounding leaves something
        return float(numbers[0]), 1.0
    with np.errstate(over="ignore", invalid="ignore"):
        mean = float(numbers.mean())
        deviation = float(numbers.std())
    if not math.isfinite(mean + deviation):
        raise OptionError(
            f"column {name!r} holds numbers of up to {np.abs(numbers).max():.0e}: their deviation is beyond what a number "
            "holds. Scale the column, or leave such rows out"
        )
    return mean, deviation or 1.0


def is_missing(cell: Any) -> bool:
    no_number = isinstance(cell, _FLOATS) and cell != cell
    return cell is None or no_number or type(cell).__name__ in ("NAType", "NaTType")  # pandas' own


_LISTS = (list, tuple, np.ndarray, Tensor)
_FLOATS = (float, np.floating)
_DATES = (date, time, timedelta, np.datetime64, np.timedelta64)
