"""Rows of an encoded table, read a batch at a time: an item is a view, and a batch is gathered column by column.

>>> rows = Rows({"item": ids, "history": Ragged.of(lists), "label": labels})
>>> rows.gather([3, 1])         # {"item": long [2], "history": long [2, longest], "label": float [2, K]}
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from regard.core.fields import MISSING
from regard.lab.data.records import Ragged


class Rows(Dataset):
    """Columns of equal length: integers are read as long, numbers as float, sequences padded with the missing id."""

    def __init__(self, columns: Mapping[str, NDArray[Any] | Ragged]):
        self.columns = {name: _stored(column) for name, column in columns.items()}
        sizes = {name: _size(column) for name, column in self.columns.items()}
        assert len(set(sizes.values())) == 1, sizes
        self._size = next(iter(sizes.values()))
        self._ends = {
            name: np.cumsum(column.lengths)
            for name, column in self.columns.items()
            if isinstance(column, Ragged)
        }

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> "Row":
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return Row(self, index % len(self))

    def gather(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Name -> tensor [len(indices) ...]."""
        rows = np.asarray(indices, dtype=np.int64)
        return {name: self._gathered(name, rows) for name in self.columns}

    def column(self, name: str) -> Tensor:
        """A column whole; padded, where it holds sequences."""
        return self._gathered(name, np.arange(len(self)))

    def take(self, indices: NDArray[np.integer]) -> "Rows":
        return Rows(
            {
                name: column.take(indices) if isinstance(column, Ragged) else column[indices]
                for name, column in self.columns.items()
            }
        )

    @property
    def lengths(self) -> Int[Tensor, "n"]:
        """A row counts as one token: what a budget of tokens is spent on."""
        return torch.ones(len(self), dtype=torch.long)

    @property
    def labels(self) -> Tensor:
        return self.column("label")

    def content(self) -> Iterator[NDArray[Any]]:
        for name in sorted(self.columns):
            column = self.columns[name]
            if isinstance(column, Ragged):
                yield column.lengths
                yield column.values
            else:
                yield column

    def _gathered(self, name: str, rows: NDArray[np.integer]) -> Tensor:
        column = self.columns[name]
        if not isinstance(column, Ragged):
            found = torch.from_numpy(column[rows])
            return found if found.is_floating_point() else found.long()
        lengths = column.lengths[rows]
        place = np.arange(max(1, lengths.max(initial=0)))
        exists = place < lengths[:, None]
        ids = np.full(exists.shape, MISSING, dtype=np.int64)
        ids[exists] = column.values[((self._ends[name][rows] - lengths)[:, None] + place)[exists]]
        return torch.from_numpy(ids)


class Row(Mapping[str, Tensor]):
    """One row of Rows, read when it is asked: name -> its number, id or ids."""

    __slots__ = ("index", "rows")

    def __init__(self, rows: Rows, index: int):
        self.rows, self.index = rows, index

    def __getitem__(self, name: str) -> Tensor:
        return self.rows._gathered(name, np.array([self.index]))[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows.columns)

    def __len__(self) -> int:
        return len(self.rows.columns)


def gathered(items: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Items of one Rows as a batch: name -> tensor."""
    rows = {id(item.rows): item.rows for item in items if isinstance(item, Row)}
    assert len(rows) == 1, "items of one Rows make a batch"
    return next(iter(rows.values())).gather([item.index for item in items if isinstance(item, Row)])


def _size(column: NDArray[Any] | Ragged) -> int:
    return len(column.lengths if isinstance(column, Ragged) else column)


def _stored(column: NDArray[Any] | Ragged) -> NDArray[Any] | Ragged:
    if isinstance(column, Ragged):
        return Ragged(column.values.astype(np.int32), column.lengths.astype(np.int64))
    return column.astype(np.float32 if np.issubdtype(column.dtype, np.floating) else np.int32)
