"""Which items meet in which batch: a pure function of the seed and the epoch, so that a run can go on anywhere."""

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache

import numpy as np

from regard.tasks import Batch, Data


class Batches:
    """The endless sequence of training batches; the incomplete one at an epoch's end is left out."""

    def __init__(self, size: int, batch_size: int, seed: int):
        self.size, self.batch_size, self.seed = size, batch_size, seed
        self.per_epoch = size // batch_size
        self._order = lru_cache(maxsize=1)(self._shuffled)

    def __getitem__(self, step: int) -> list[int]:
        """Items of the batch that step 0, 1, ... trains on."""
        epoch, position = divmod(step, self.per_epoch)
        start = position * self.batch_size
        return self._order(epoch)[start : start + self.batch_size].tolist()

    def _shuffled(self, epoch: int) -> np.ndarray:
        return np.random.default_rng([self.seed, epoch]).permutation(self.size)


def steps_for_tokens(tokens: int, batches: Batches, data: Data) -> int:
    """Smallest number of steps whose items hold at least `tokens` tokens."""
    lengths, step = data.lengths, 0
    while tokens > 0:
        tokens -= int(lengths[batches[step]].sum())
        step += 1
    return step


def in_order(data: Data, batch_size: int, collate: Callable[[Sequence], Batch]) -> Iterator[Batch]:
    """Every item once, in the order of the data; the last batch may be smaller."""
    size = len(data)
    for start in range(0, size, batch_size):
        yield collate([data[item] for item in range(start, min(start + batch_size, size))])
