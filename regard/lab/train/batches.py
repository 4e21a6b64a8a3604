"""The items of each batch: a pure function of the seed and the epoch, so that a run can go on anywhere.

Packing puts the sequences of a batch end to end in fewer rows, each a document, so that little is padding.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache, partial
from inspect import signature
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils.data import BatchSampler, DataLoader, DistributedSampler

from regard.core import OptionError
from regard.lab.data.records import IGNORED, Integers, Records
from regard.lab.tasks.task import Batch, Task, padded

Collate = Callable[[Sequence], Batch]  # items to a batch
PER_TOKEN = ("language_model", "masked_language_model")
"""Kinds of tasks with one sequence in an item, and a label for each of its tokens."""


class Batches:
    """The endless sequence of training batches of items of these lengths; the incomplete one at an epoch's end is left out.

    With `bucket`, the items of every `bucket` batches of a shuffled epoch are sorted by length before they are cut into
    batches, and the batches of the epoch are shuffled again: items of a batch are of like length, and little is padding.
    """

    def __init__(self, lengths: Tensor, batch_size: int, seed: int, bucket: int | None = None):
        self.lengths = lengths.numpy()
        self.batch_size = batch_size
        self.seed = seed
        self.bucket = bucket
        self.per_epoch = len(lengths) // batch_size
        self._order = lru_cache(maxsize=1)(self._shuffled)

    def __getitem__(self, step: int) -> list[int]:
        """Items of the batch that step 0, 1, ... trains on."""
        epoch, position = divmod(step, self.per_epoch)
        start = position * self.batch_size
        return self._order(epoch)[start : start + self.batch_size].tolist()

    def _shuffled(self, epoch: int) -> Integers:
        rng = np.random.default_rng([self.seed, epoch])
        order = rng.permutation(len(self.lengths))
        if self.bucket is None:
            return order
        whole = order[: self.per_epoch * self.batch_size]
        step = self.bucket * self.batch_size
        pools = np.split(whole, range(step, len(whole), step))
        alike = [pool[np.argsort(self.lengths[pool], kind="stable")] for pool in pools]
        batches = np.concatenate(alike).reshape(self.per_epoch, self.batch_size)
        return batches[rng.permutation(self.per_epoch)].ravel()


def steps_for_tokens(tokens: int, batches: Batches) -> int:
    """Smallest number of steps whose items hold at least `tokens` tokens."""
    step = 0
    while tokens > 0:
        tokens -= int(batches.lengths[batches[step]].sum())
        step += 1
    return step


def loaded(
    data: Records, collate: Collate, shares: Iterable[Sequence[int]], workers: int = 0
) -> Iterator[Batch]:
    """A batch for each share of items, in order. Workers make them ahead, in processes of their own.

    The global generator is left alone: the same batches and the same training whatever the number of workers.
    """
    loader = DataLoader(
        data,
        batch_sampler=shares,  # type: ignore[arg-type]
        collate_fn=collate,
        num_workers=workers,
        generator=torch.Generator(),
    )
    return iter(loader)


def in_order(
    data: Records, batch_size: int, collate: Collate, rank: int = 0, processes: int = 1
) -> Iterator[Batch]:
    """Every item once, in the order of the data; the last batch may be smaller.

    Of several processes each has every n-th item, and all have equally many: the first items come again.
    """
    items: DistributedSampler[Any] = DistributedSampler(data, processes, rank, shuffle=False)
    return loaded(data, collate, BatchSampler(items, batch_size, drop_last=False))


def packing(task: Task, model: nn.Module, data: Records) -> Collate:
    """The task's `collate`, packed. Raises OptionError, with the reason, where sequences cannot share rows, or none needs padding."""
    who = type(task)
    kind = task.kind
    if kind not in PER_TOKEN:
        why = f"{task.name} ({kind}) has no loss of each token of one sequence, as {' and '.join(PER_TOKEN)} have"
    elif (who.answer, who.collate) != (Task.answer, Task.collate):
        why = f"{task.name} has an answer or collate of its own, which may not pass documents on"
    elif len(data.lengths.unique()) == 1:
        why = f"the items of {task.name} are of one length, and nothing is padding"
    elif "documents" not in signature(model.forward).parameters:
        why = f"{type(model).__name__} takes no documents, so that those of a row would be mixed"
    else:
        return partial(packed, task.collate)
    raise OptionError(f"fit does not pack: {why}. Leave packing out.")


def packed(collate: Collate, items: Sequence) -> Batch:
    """The items' batch in fewer rows, no longer than its longest item; `documents` [B T] numbers the items.

    The longest come first, each in the first row with room for it (first fit).
    """
    batch = collate(items)
    if batch["valid"] is None:
        return batch
    valid = batch.pop("valid")
    lengths = valid.sum(1).tolist()
    rows = list[list[int]]()
    for item in sorted(range(len(lengths)), key=lengths.__getitem__, reverse=True):
        room = valid.shape[1] - lengths[item]
        row = next((row for row in rows if sum(lengths[i] for i in row) <= room), None)
        rows.append([item]) if row is None else row.append(item)
    batch["documents"] = torch.arange(len(lengths))[:, None].expand(valid.shape)
    for name, x in list(batch.items()):
        parts = x[valid].split(lengths)
        fill = 0 if name == "tokens" else IGNORED
        whole = [torch.cat([parts[i] for i in row]) for row in rows]
        batch[name], batch["valid"] = padded(whole, fill)
    return batch
