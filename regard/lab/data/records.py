"""How a split keeps its items: sequences (Examples), named columns (Records) and rows of tables (TableRows)."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Protocol

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from regard.nn.fields import MISSING

IGNORED = -100
"""The label of a token that no loss and no metric counts."""


class Data(Protocol):
    """A split: items by number, each a dict of tensors; the tokens in each; all labels, and all content, in order."""

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
    """Records: rows of named columns, stored flat; what every task's data is kept in.

    Item i is {column: tensor}: a row of an array, or a sequence of a Ragged; integers are long, numbers float.

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


class Examples(Dataset):
    """Examples: sequences of unequal length and their labels, stored flat.

    Item i is {"tokens": long [t_i], "label": long [] or [t_i]}; the order is fixed by whoever made it.

    `tokens` holds all sequences end to end, `lengths` says where to cut. `labels` holds one number for each
    sequence or one for each token; -100 marks a token without a label.
    """

    def __init__(
        self, tokens: NDArray[np.integer], lengths: NDArray[np.integer], labels: NDArray[np.integer]
    ):
        assert len(tokens) == lengths.sum() and len(labels) in (len(lengths), len(tokens))
        self._tokens = torch.from_numpy(tokens.astype(np.int32))
        self._labels = torch.from_numpy(labels.astype(np.int32))
        self._ends = torch.from_numpy(lengths.astype(np.int64)).cumsum(0)
        self._per_token = labels.shape != lengths.shape

    @classmethod
    def windows(cls, tokens: NDArray[np.integer], labels: NDArray[np.integer]) -> "Examples":
        """Sequences of one length with a label for each token, both [n T]."""
        return cls(tokens.ravel(), np.full(len(tokens), tokens.shape[1]), labels.ravel())

    def rows(self) -> tuple[Int[Tensor, "n T"], Int[Tensor, "n T"]]:
        """All tokens and all labels, where sequences are of one length and every token has a label or -100."""
        n = len(self)
        return self._tokens.view(n, -1).long(), self._labels.view(n, -1).long()

    def __len__(self) -> int:
        return len(self._ends)

    def __getitem__(self, index: int) -> dict[str, Int[Tensor, "..."]]:
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        index %= len(self)
        end = int(self._ends[index])
        span = slice(int(self._ends[index - 1]) if index else 0, end)
        label = self._labels[span if self._per_token else index]
        return {"tokens": self._tokens[span].long(), "label": label.long()}

    @property
    def labels(self) -> Int[Tensor, "N"]:
        """Every label in order, one long vector."""
        return self._labels.long()

    @property
    def lengths(self) -> Int[Tensor, "n"]:
        return self._ends.diff(prepend=self._ends.new_zeros(1))

    def content(self) -> Iterator[NDArray[Any]]:
        yield self._ends.numpy()
        yield self._tokens.numpy()
        yield self._labels.numpy()


def checksum(*splits: Data) -> str:
    """SHA-256 over the content and the borders of the splits, the same on every machine."""
    digest = sha256()
    for split in splits:
        for column in split.content():
            stored = column.astype(column.dtype.newbyteorder("<"))
            digest.update(len(stored).to_bytes(8, "little"))
            digest.update(stored.tobytes())
    return digest.hexdigest()


class TableRows(Dataset):
    """TableRows of an encoded table, read a batch at a time: an item is a view, and a batch is gathered column by column.

    >>> rows = TableRows({"item": ids, "history": Ragged.of(lists), "label": labels})
    >>> rows.gather([3, 1])         # {"item": long [2], "history": long [2, longest], "label": float [2, K]}

    Columns of equal length: integers are read as long, numbers as float, sequences padded with the missing id.
    """

    def __init__(self, columns: Mapping[str, NDArray[Any] | Ragged]):
        self.columns = {name: _stored(column) for name, column in columns.items()}
        sizes = {name: _row_count(column) for name, column in self.columns.items()}
        assert len(set(sizes.values())) == 1, sizes
        self._size = next(iter(sizes.values()))
        self._ends = {
            name: np.cumsum(column.lengths)
            for name, column in self.columns.items()
            if isinstance(column, Ragged)
        }

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> "TableRow":
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return TableRow(self, index % len(self))

    def gather(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Name -> tensor [len(indices) ...]."""
        rows = np.asarray(indices, dtype=np.int64)
        return {name: self._gathered(name, rows) for name in self.columns}

    def column(self, name: str) -> Tensor:
        """A column whole; padded, where it holds sequences."""
        return self._gathered(name, np.arange(len(self)))

    def take(self, indices: NDArray[np.integer]) -> "TableRows":
        return TableRows(
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


class TableRow(Mapping[str, Tensor]):
    """One row of TableRows, read lazily: name -> its number, id or ids."""

    __slots__ = ("index", "rows")

    def __init__(self, rows: TableRows, index: int):
        self.rows, self.index = rows, index

    def __getitem__(self, name: str) -> Tensor:
        return self.rows._gathered(name, np.array([self.index]))[0]

    def __iter__(self) -> Iterator[str]:
        return iter(self.rows.columns)

    def __len__(self) -> int:
        return len(self.rows.columns)


def gathered(items: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Items of one TableRows as a batch: name -> tensor."""
    rows = {id(item.rows): item.rows for item in items if isinstance(item, TableRow)}
    assert len(rows) == 1, "items of one TableRows make a batch"
    return next(iter(rows.values())).gather(
        [item.index for item in items if isinstance(item, TableRow)]
    )


def _row_count(column: NDArray[Any] | Ragged) -> int:
    return len(column.lengths if isinstance(column, Ragged) else column)


def _stored(column: NDArray[Any] | Ragged) -> NDArray[Any] | Ragged:
    if isinstance(column, Ragged):
        return Ragged(column.values.astype(np.int32), column.lengths.astype(np.int64))
    return column.astype(np.float32 if np.issubdtype(column.dtype, np.floating) else np.int32)
