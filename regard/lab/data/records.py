"""A split keeps its items as named columns of numbers, and of sequences of unequal length, stored flat."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from typing import Any, NamedTuple

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from regard.core import OptionError
from regard.nn.fields import MISSING

IGNORED = -100
"""The label of a token that no loss and no metric counts."""

Array = NDArray[Any]
Integers = NDArray[np.integer]
Items = Sequence[Mapping[str, Tensor]]
"""Rows of a split, each a mapping from the name of a column to what it holds there."""


@dataclass(frozen=True, eq=False)
class Ragged:
    """Sequences of unequal length, end to end. Indexed as an array whose rows they are."""

    values: Array
    lengths: Integers

    def __post_init__(self):
        assert len(self.values) == self.lengths.sum()

    @classmethod
    def of(cls, rows: list) -> "Ragged":
        lengths = np.array([len(row) for row in rows], np.int64)
        full = [row for row in rows if len(row)] or [np.empty(0, np.int32)]
        return cls(np.concatenate(full), lengths)

    @classmethod
    def even(cls, rows: Array) -> "Ragged":
        """Sequences of one length, [n T]."""
        return cls(rows.ravel(), np.full(len(rows), rows.shape[1]))

    @cached_property
    def ends(self) -> Integers:
        return np.cumsum(self.lengths)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, rows: Any) -> Any:
        """The sequence of one row, a view; the Ragged of several."""
        if np.ndim(rows) == 0:
            return self.values[self.ends[rows] - self.lengths[rows] : self.ends[rows]]
        lengths = self.lengths[rows]
        at = np.repeat(self.ends[rows] - np.cumsum(lengths), lengths) + np.arange(lengths.sum())
        return Ragged(self.values[at], lengths)

    def padded(self) -> Array:
        """[n, longest], at least 1 long: MISSING on the right."""
        exists = np.arange(max(1, self.lengths.max(initial=0))) < self.lengths[:, None]
        found = np.full(exists.shape, MISSING, self.values.dtype)
        found[exists] = self.values
        return found


Column = Array | Ragged


class Rows(NamedTuple):
    """Sequences of one length, and a label for each of their tokens or IGNORED."""

    tokens: Integers  # [n T]
    labels: Integers  # [n T]


class Records(Dataset):
    """Rows of named columns; what every task's data is kept in. An item is a view, and a batch is gathered column by column.

    >>> rows = Records({"item": ids, "history": Ragged.of(lists), "label": labels})
    >>> rows[3]["history"]          # long [t]
    >>> rows.gather([3, 1])         # {"item": long [2], "history": long [2, longest], "label": float [2, K]}

    Integers are read as long, numbers as float.
    counted: the columns of sequences whose lengths are an item's tokens (without any, an item counts as one).
    """

    def __init__(self, columns: Mapping[str, Column], *, counted: tuple[str, ...] = ()):
        self.columns = {name: _stored(column) for name, column in columns.items()}
        sizes = {len(column) for column in self.columns.values()}
        assert len(sizes) == 1, sizes
        self._size = sizes.pop()
        self._counted = counted

    def __len__(self) -> int:
        return self._size

    def __getitem__(self, index: int) -> "Item":
        return Item(self, range(len(self))[index])

    def __iter__(self) -> Iterator["Item"]:
        return map(self.__getitem__, range(len(self)))

    def gather(self, indices: Sequence[int]) -> dict[str, Tensor]:
        """Name -> tensor [len(indices) ...]; sequences are padded with the missing id, to a length of at least 1."""
        rows = np.asarray(indices, np.int64)
        return {name: _tensor(column[rows]) for name, column in self.columns.items()}

    def column(self, name: str) -> Tensor:
        """A column whole; padded, where it holds sequences."""
        return _tensor(self.columns[name])

    def take(self, indices: Integers) -> "Records":
        taken = {name: column[indices] for name, column in self.columns.items()}
        return Records(taken, counted=self._counted)

    @property
    def lengths(self) -> Int[Tensor, "n"]:
        """Tokens of each item: what a budget of tokens is spent on."""
        found = np.full(len(self), not self._counted, np.int64)
        for column in map(self.columns.__getitem__, self._counted):
            found += column.lengths  # type: ignore[union-attr]  # those are sequences
        return torch.from_numpy(found)

    @property
    def labels(self) -> Tensor:
        """The column "label", in order; one long vector where each token has one."""
        column = self.columns["label"]
        return _tensor(column.values if isinstance(column, Ragged) else column)

    def rows(self) -> tuple[Int[Tensor, "n T"], Int[Tensor, "n T"]]:
        """All tokens and all labels of Examples of one length, where every token has a label or -100. Raises OptionError for others."""
        columns: Any = self.columns
        tokens, label = (columns.get(name) for name in ("tokens", "label"))
        both = isinstance(tokens, Ragged) and isinstance(label, Ragged)
        if not both or len({*tokens.lengths.tolist(), *label.lengths.tolist()}) != 1:
            raise OptionError(
                "a Short run takes rows of one length with a label, or -100, at each token: give the column a TrainConfig"
            )
        return _tensor(tokens.values).view(len(self), -1), self.labels.view(len(self), -1)

    def content(self) -> Iterator[Array]:
        for name in sorted(self.columns):
            column = self.columns[name]
            yield from (column.lengths, column.values) if isinstance(column, Ragged) else (column,)


class Item(Mapping[str, Tensor]):
    """One row of Records, read when it is asked for: name -> its number, numbers or sequence."""

    __slots__ = ("index", "records")

    def __init__(self, records: Records, index: int):
        self.records = records
        self.index = index

    def __getitem__(self, name: str) -> Tensor:
        return _tensor(np.asarray(self.records.columns[name][self.index]))

    def __iter__(self) -> Iterator[str]:
        return iter(self.records.columns)

    def __len__(self) -> int:
        return len(self.records.columns)


class Examples(Records):
    """Sequences of unequal length, end to end, and their labels: one of each, or, Ragged, one of each token (-100: none)."""

    def __init__(self, tokens: Ragged, label: Column):
        super().__init__({"tokens": tokens, "label": label}, counted=("tokens",))

    @classmethod
    def windows(cls, tokens: Integers, labels: Integers) -> "Examples":
        """Sequences of one length with a label for each token, both [n T]."""
        return cls(Ragged.even(tokens), Ragged.even(labels))

    def content(self) -> Iterator[Array]:
        """Borders, tokens, labels: the order that stored checksums are of."""
        tokens = self.columns["tokens"]
        label = self.columns["label"]
        assert isinstance(tokens, Ragged)
        yield from (tokens.ends, tokens.values)
        yield label.values if isinstance(label, Ragged) else label


def gathered(items: Items) -> dict[str, Tensor]:
    """Items of one Records as a batch: name -> tensor."""
    views = [item for item in items if isinstance(item, Item)]
    assert len({id(item.records) for item in views}) == 1, "items of one Records make a batch"
    return views[0].records.gather([item.index for item in views])


def checksum(*splits: Records) -> str:
    """SHA-256 over the content and the borders of the splits, the same on every machine."""
    digest = sha256()
    for split in splits:
        for column in split.content():
            stored = column.astype(column.dtype.newbyteorder("<"))
            digest.update(len(stored).to_bytes(8, "little"))
            digest.update(stored.tobytes())
    return digest.hexdigest()


def _stored(column: Column) -> Column:
    if isinstance(column, Ragged):
        return Ragged(_narrow(column.values), column.lengths.astype(np.int64))
    return _narrow(column)


def _narrow(values: Array) -> Array:
    if values.dtype.kind not in "biuf":
        raise OptionError(f"Records hold numbers, got {values.dtype}")
    if values.dtype.kind == "f":
        return values.astype(np.float32)
    found = values.astype(np.int32)
    return found if (found == values).all() else values.astype(np.int64)


def _tensor(values: Column) -> Tensor:
    found = torch.from_numpy(values.padded() if isinstance(values, Ragged) else values)
    return found.clone() if found.is_floating_point() else found.long()
