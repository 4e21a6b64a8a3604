"""Examples: sequences of unequal length and their labels, stored flat."""

from collections.abc import Iterator
from hashlib import sha256
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import Dataset

from regard.lab.data.records import Data


class Examples(Dataset):
    """Item i is {"tokens": long [t_i], "label": long [] or [t_i]}; the order is fixed by whoever made it.

    `tokens` holds all sequences end to end, `lengths` says where to cut. `labels` holds one number for each
    sequence or one for each token; -100 asks nothing of a token.
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
