"""Which items form which batch: a pure function of the seed and the epoch, so that a run can go on anywhere."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.utils.data import BatchSampler, DataLoader

from regard.lab.data.records import Records
from regard.lab.tasks import Batch


class Batches:
    """The endless sequence of training batches; the incomplete one at an epoch's end is left out.

    With `bucket`, the items of every `bucket` batches of a shuffled epoch are sorted by length before they are cut into
    batches, and the batches of the epoch are shuffled again: items of a batch are of like length, and little is padding.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        seed: int,
        *,
        bucket: int | None = None,
        lengths: Tensor | None = None,
    ):
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.per_epoch = size // batch_size
        self.bucket, self.lengths = bucket, lengths
        self._order = lru_cache(maxsize=1)(self._shuffled)

    def __getitem__(self, step: int) -> list[int]:
        """Items of the batch that step 0, 1, ... trains on."""
        epoch, position = divmod(step, self.per_epoch)
        start = position * self.batch_size
        return self._order(epoch)[start : start + self.batch_size].tolist()

    def _shuffled(self, epoch: int) -> NDArray[np.integer]:
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(self.size)
        if self.bucket is None or self.lengths is None:
            return order
        whole = order[: self.per_epoch * self.batch_size]
        step = self.bucket * self.batch_size
        pools = (whole[start : start + step] for start in range(0, len(whole), step))
        alike = [pool[np.argsort(self.lengths.numpy()[pool], kind="stable")] for pool in pools]
        batches = np.concatenate(alike).reshape(self.per_epoch, self.batch_size)
        return batches[rng.permutation(self.per_epoch)].ravel()


def steps_for_tokens(tokens: int, batches: Batches, data: Records) -> int:
    """Smallest number of steps whose items hold at least `tokens` tokens."""
    lengths, step = data.lengths, 0
    while tokens > 0:
        tokens -= int(lengths[batches[step]].sum())
        step += 1
    return step


def loaded(
    data: Records,
    collate: Callable[[Sequence], Batch],
    shares: Iterable[Sequence[int]],
    workers: int = 0,
) -> Iterator[Batch]:
    """A batch for each share of items, in order. Workers make them ahead, in processes of their own.

    The global generator is left alone: the same batches and the same training whatever the number of workers.
    """
    loader: DataLoader[Any] = DataLoader(
        data,
        batch_sampler=shares,  # type: ignore[arg-type]
        collate_fn=collate,
        num_workers=workers,
        generator=torch.Generator(),
    )
    return iter(loader)


def in_order(
    data: Records, batch_size: int, collate: Callable[[Sequence], Batch]
) -> Iterator[Batch]:
    """Every item once, in the order of the data; the last batch may be smaller."""
    return loaded(data, collate, BatchSampler(range(len(data)), batch_size, drop_last=False))
