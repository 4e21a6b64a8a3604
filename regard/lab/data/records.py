"""How a split keeps its items: named columns of numbers, and of sequences of unequal length, stored flat."""

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
    """A split: items by number, each name -> tensor; the tokens in each; all labels, and all content, in order."""

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
    """Rows of named columns; what every task's data is kept in. An item is a view, and a batch is gathered column by column.

    >>> rows = Records({"item": ids, "history": Ragged.of(lists), "label": labels})
    >>> rows[3]["history"]          # long [t]
    >>> rows.gather([3, 1])         # {"item": long [2], "history": long [2, longest], "label": float [2, K]}

    Integers are read as long, numbers as float.
    counted: the columns of sequences whose lengths are an item's tokens (without any, an item counts as one).
    """

    def __init__(
        self, columns: Mapping[str, NDArray[Any] | Ragged], *, counted: tuple[str, ...] = ()
    ):
        self.columns = {name: _stored(column) for name, column in columns.items()}
        self._ends = {
            name: np.cumsum(column.lengths)
            for name, column in self.columns.items()
            if isinstance(column, Ragged)
        }
        sizes = {len(self._ends.get(n, column)) for n, column in self.columns.items()}  # type: ignore[arg-type]
        assert len(sizes) == 1, sizes
        self._size = sizes.pop()
        self._counted = counted

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> "Item":
        if not -len(self) <= index < len(self):
            raise IndexError(index)
        return Item(self, index % len(self))

    def gather(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Name -> tensor [len(indices) ...]; sequences are padded with the missing id, to a length of at least 1."""
        rows = np.asarray(indices, dtype=np.int64)
        return {name: self._gathered(name, rows) for name in self.columns}

    def column(self, name: str) -> Tensor:
        """A column whole; padded, where it holds sequences."""
        return self._gathered(name, np.arange(len(self)))

    def take(self, indices: NDArray[np.integer]) -> "Records":
        taken = {
            name: column.take(indices) if isinstance(column, Ragged) else column[indices]
            for name, column in self.columns.items()
        }
        return Records(taken, counted=self._counted)

    @property
    def lengths(self) -> Int[Tensor, "n"]:
        """Tokens of each item: what a budget of tokens is spent on."""
        found = np.full(len(self), not self._counted, dtype=np.int64)
        for name in self._counted:
            found += np.diff(self._ends[name], prepend=0)
        return torch.from_numpy(found)

    @property
    def labels(self) -> Tensor:
        """The column "label", in order; one long vector where each token has one."""
        column = self.columns["label"]
        return _tensor(column.values if isinstance(column, Ragged) else column)

    def content(self) -> Iterator[NDArray[Any]]:
        for name in sorted(self.columns):
            column = self.columns[name]
            yield from (column.lengths, column.values) if isinstance(column, Ragged) else (column,)

    def _gathered(self, name: str, rows: NDArray[np.integer]) -> Tensor:
        column = self.columns[name]
        if not isinstance(column, Ragged):
            return _tensor(column[rows])
        lengths = column.lengths[rows]
        place = np.arange(max(1, lengths.max(initial=0)))
        exists = place < lengths[:, None]
        ids = np.full(exists.shape, MISSING, dtype=np.int64)
        ids[exists] = column.values[((self._ends[name][rows] - lengths)[:, None] + place)[exists]]
        return torch.from_numpy(ids)


class Item(Mapping[str, Tensor]):
    """One row of Records, read when it is asked for: name -> its number, numbers or sequence."""

    __slots__ = ("index", "records")

    def __init__(self, records: Records, index: int):
        self.records, self.index = records, index

    def __getitem__(self, name: str) -> Tensor:
        column, index = self.records.columns[name], self.index
        if not isinstance(column, Ragged):
            return _tensor(np.asarray(column[index]))
        end = self.records._ends[name][index]
        return _tensor(column.values[end - column.lengths[index] : end])

    def __iter__(self) -> Iterator[str]:
        return iter(self.records.columns)

    def __len__(self) -> int:
        return len(self.records.columns)


class Examples(Records):
    """Sequences of unequal length, end to end, and their labels: one of each, or one of each token (-100: none)."""

    def __init__(
        self, tokens: NDArray[np.integer], lengths: NDArray[np.integer], labels: NDArray[np.integer]
    ):
        label = labels if labels.shape == lengths.shape else Ragged(labels, lengths)
        super().__init__({"tokens": Ragged(tokens, lengths), "label": label}, counted=("tokens",))

    @classmethod
    def windows(cls, tokens: NDArray[np.integer], labels: NDArray[np.integer]) -> "Examples":
        """Sequences of one length with a label for each token, both [n T]."""
        return cls(tokens.ravel(), np.full(len(tokens), tokens.shape[1]), labels.ravel())

    def rows(self) -> tuple[Int[Tensor, "n T"], Int[Tensor, "n T"]]:
        """All tokens and all labels, where sequences are of one length and every token has a label or -100."""
        tokens, labels = self.columns["tokens"], self.columns["label"]
        assert isinstance(tokens, Ragged) and isinstance(labels, Ragged)
        n = len(self)
        return _tensor(tokens.values.reshape(n, -1)), _tensor(labels.values.reshape(n, -1))

    def content(self) -> Iterator[NDArray[Any]]:
        """Borders, tokens, labels: the order that stored checksums are of."""
        yield self._ends["tokens"]
        for name in ("tokens", "label"):
            column = self.columns[name]
            yield column.values if isinstance(column, Ragged) else column


def gathered(items: Sequence[Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Items of one Records as a batch: name -> tensor."""
    views = [item for item in items if isinstance(item, Item)]
    assert len({id(item.records) for item in views}) == 1, "items of one Records make a batch"
    return views[0].records.gather([item.index for item in views])


def checksum(*splits: Data) -> str:
    """SHA-256 over the content and the borders of the splits, the same on every machine."""
    digest = sha256()
    for split in splits:
        for column in split.content():
            stored = column.astype(column.dtype.newbyteorder("<"))
            digest.update(len(stored).to_bytes(8, "little"))
            digest.update(stored.tobytes())
    return digest.hexdigest()


def _stored(column: NDArray[Any] | Ragged) -> NDArray[Any] | Ragged:
    if isinstance(column, Ragged):
        return Ragged(column.values.astype(np.int32), column.lengths.astype(np.int64))
    return column.astype(np.float32 if np.issubdtype(column.dtype, np.floating) else np.int32)


def _tensor(values: NDArray[Any]) -> Tensor:
    found = torch.from_numpy(values)
    return found.clone() if found.is_floating_point() else found.long()
