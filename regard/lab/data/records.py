"""Records: rows of named columns, stored flat; what every task's data is kept in."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset


class Data(Protocol):
    """What a split offers: items by number, each a dict of tensors; the tokens in each; all labels, and all content, in order."""

    def __len__(self) -> int: ...

    def __getitem__(self, index: int, /) -> Mapping[str, Tensor]: ...

    @property
    def lengths(self) -> Int[Tensor, "n"]: ...

    @property
    def labels(self) -> Tensor: ...

    def content(self) -> Iterator[NDArray[Any]]: ...


@dataclass(frozen=True, eq=False)
class Ragged:
    """Sequences of unequal length, end to end."""

    values: NDArray[Any]
    lengths: NDArray[np.integer]

    def __post_init__(self) -> None:
        assert len(self.values) == self.lengths.sum()

    @classmethod
    def of(cls, rows: list, dtype: Any = np.int32) -> "Ragged":
        lengths = np.array([len(row) for row in rows], dtype=np.int64)
        flat = [np.asarray(row, dtype=dtype) for row in rows]
        return cls(np.concatenate(flat) if flat else np.zeros(0, dtype), lengths)

    def take(self, rows: NDArray[np.integer]) -> "Ragged":
        ends = np.cumsum(self.lengths)
        parts = [self.values[ends[row] - self.lengths[row] : ends[row]] for row in rows]
        flat = np.concatenate(parts) if parts else self.values[:0]
        return Ragged(flat, self.lengths[rows])


class Records(Dataset):
    """Item i is {column: tensor}: a row of an array, or a sequence of a Ragged; integers are long, numbers float.

    counted: the Ragged columns whose lengths are an item's tokens (each item of a table without any counts as one).
    """

    def __init__(
        self,
        columns: Mapping[str, NDArray[Any] | Ragged],
        *,
        counted: tuple[str, ...] = (),
    ):
        sizes = {
            name: len(column.lengths if isinstance(column, Ragged) else column)
            for name, column in columns.items()
        }
        assert len(set(sizes.values())) == 1, sizes
        self.columns = dict(columns)
        self._size = next(iter(sizes.values()))
        self._values = {name: _tensor(column) for name, column in columns.items()}
        self._ends = {
            name: np.concatenate([[0], np.cumsum(column.lengths)]).tolist()
            for name, column in columns.items()
            if isinstance(column, Ragged)
        }
        self._lengths = torch.ones(self._size, dtype=torch.long)
        for place, name in enumerate(counted):
            column = self.columns[name]
            assert isinstance(column, Ragged)
            counts = torch.from_numpy(column.lengths.astype(np.int64))
            self._lengths = self._lengths + counts if place else counts

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> dict[str, Tensor]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        item = {}
        for name, values in self._values.items():
            ends = self._ends.get(name)
            found = values[index] if ends is None else values[ends[index] : ends[index + 1]]
            item[name] = found if found.is_floating_point() else found.long()
        return item

    @property
    def lengths(self) -> Int[Tensor, "n"]:
        return self._lengths

    @property
    def labels(self) -> Tensor:
        """The column "label", whole."""
        values = self._values["label"]
        return values if values.is_floating_point() else values.long()

    def content(self) -> Iterator[NDArray[Any]]:
        for name in sorted(self.columns):
            column = self.columns[name]
            if isinstance(column, Ragged):
                yield column.lengths
                yield column.values
            else:
                yield column


def _tensor(column: NDArray[Any] | Ragged) -> Tensor:
    values = column.values if isinstance(column, Ragged) else column
    if np.issubdtype(values.dtype, np.floating):
        return torch.from_numpy(values.astype(np.float32))
    return torch.from_numpy(values.astype(np.int32))
