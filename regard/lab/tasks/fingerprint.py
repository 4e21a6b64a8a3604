"""Tasks that each need one ability of one layer: to look up, to keep order, to go to an address, to count.

    lookup    k1=3 k7=0 k4=2 | k7 k4 k1    ->  0 2 3        pairs of key and value, one token each; then the keys in another order
    order     a c b d | . . . .            ->  b d a c      symbols, then blanks: the symbols in one order, the same in every row
    address   a c b d | @2 @0 @0 @3        ->  b a a d      symbols, then tokens that each name a place
    counting  a b a a c                    ->  3 1 3 3 1    how often the token is in the row; causal: so far

Rows are drawn in whole-array operations and never come twice. Answers are classes 0, 1, ..; tokens that are not asked have none.
"""

from abc import abstractmethod

import numpy as np
import torch
from jaxtyping import Bool
from numpy.random import Generator, default_rng
from torch import Tensor

from regard.lab.data.records import IGNORED, Examples, Integers, Rows
from regard.lab.tasks.task import Drawn, Splits

Pairs = Bool[Tensor, "T T"]


class Ability(Drawn):
    """Base of these tasks: accuracy over the tokens that are asked, which stand in the same places of every row.

    causal: for models that see no later token. Only `counting` then asks something else, for elsewhere the question comes last.
    """

    kind = "masked_language_model"  # of an instance: see __post_init__
    baseline = "most frequent answer"

    causal: bool = False
    train_size: int = 16000  # 500 steps of 32 rows
    valid_size: int = 512
    test_size: int = 512

    def __post_init__(self):
        if self.causal:
            vars(self).update(kind="language_model")

    @property
    @abstractmethod
    def num_classes(self) -> int: ...

    @abstractmethod
    def draw(self, count: int, rng: Generator) -> Rows:
        """Draws so many rows."""

    def load(self) -> Splits:
        """The parts have generators of their own: other sizes of one leave the others as they are."""
        sizes = self.train_size, self.valid_size, self.test_size
        return Splits(
            *(
                Examples.windows(*self.draw(size, default_rng([self.seed, part])))
                for part, size in enumerate(sizes)
            )
        )


class Lookup(Ability):
    """Lookup: the value of a key. A row holds half of the keys, so that which keys it holds is no answer."""

    name = "lookup"

    num_pairs: int = 24
    num_values: int = 4

    @property
    def num_keys(self) -> int:
        return 2 * self.num_pairs

    @property
    def vocab_size(self) -> int:
        return 1 + self.num_keys * (self.num_values + 1)

    @property
    def num_classes(self) -> int:
        return self.num_values

    @property
    def max_len(self) -> int:
        return 2 * self.num_pairs

    def draw(self, count: int, rng: Generator) -> Rows:
        keys = rng.random((count, self.num_keys)).argsort(1)[:, : self.num_pairs]
        values = rng.integers(0, self.num_values, keys.shape)
        order = rng.random(keys.shape).argsort(1)
        asked, answers = (np.take_along_axis(found, order, 1) for found in (keys, values))
        pairs = 1 + self.num_values * keys + values
        return _halves(pairs, 1 + self.num_values * self.num_keys + asked, answers)


class Capacity(Lookup):
    """Capacity: lookup among so many keys that a state of fixed size is short of room."""

    name = "capacity"

    num_pairs: int = 64
    train_size: int = 48000


class SaidAgain(Ability):
    """Rows whose second half gives symbols of the first again."""

    length: int  # symbols to give again
    symbols: int = 16  # different ones
    train_size: int = 9600

    @property
    def num_classes(self) -> int:
        return self.symbols

    @property
    def max_len(self) -> int:
        return 2 * self.length


class Order(SaidAgain):
    """Order: symbols again, in an order that is random and the same in every row (a shift would suit some strides)."""

    name = "order"

    length: int = 24  # symbols to give again
    order_seed: int = 5  # of the order; with this one a window of 4 reaches no answer

    @property
    def vocab_size(self) -> int:
        return 2 + self.symbols

    @property
    def order(self) -> Integers:
        """The place of each answer's symbol."""
        drawn = torch.Generator().manual_seed(self.order_seed)
        return torch.randperm(self.length, generator=drawn).numpy()

    @property
    def needed(self) -> Pairs:
        """True where the answer at a token (row) depends on another (column)."""
        needed = torch.zeros(self.max_len, self.max_len, dtype=torch.bool)
        needed[torch.arange(self.length, self.max_len), torch.from_numpy(self.order)] = True
        return needed

    def draw(self, count: int, rng: Generator) -> Rows:
        symbols = rng.integers(0, self.symbols, (count, self.length))
        return _halves(1 + symbols, np.full_like(symbols, 1 + self.symbols), symbols[:, self.order])


class Address(SaidAgain):
    """Address: the symbol at a place that a token names."""

    name = "address"

    length: int = 16  # symbols, and questions

    @property
    def vocab_size(self) -> int:
        return 1 + self.symbols + self.length

    @property
    def needed(self) -> Pairs:
        told = torch.arange(self.max_len) < self.length
        return ~told[:, None] & told

    def draw(self, count: int, rng: Generator) -> Rows:
        symbols = rng.integers(0, self.symbols, (count, self.length))
        places = rng.integers(0, self.length, (count, self.length))
        answers = np.take_along_axis(symbols, places, 1)
        return _halves(1 + symbols, 1 + self.symbols + places, answers)


class Counting(Ability):
    """Counting: how often each token is in its row, or came so far; class c stands for c + 1, the last for more as well."""

    name = "counting"

    length: int = 32
    symbols: int = 16  # different ones, of unequal frequency
    most: int = 8  # the largest count that is told apart
    train_size: int = 19200

    @property
    def vocab_size(self) -> int:
        return 1 + self.symbols

    @property
    def num_classes(self) -> int:
        return self.most

    def draw(self, count: int, rng: Generator) -> Rows:
        frequency = np.arange(1, self.symbols + 1) ** -0.75
        symbols = rng.choice(self.symbols, (count, self.length), p=frequency / frequency.sum())
        equal = symbols[:, :, None] == symbols[:, None, :]
        if self.causal:
            equal &= np.tri(self.length, dtype=bool)
        return Rows(1 + symbols, np.minimum(equal.sum(2), self.most) - 1)


def _halves(told: Integers, questions: Integers, answers: Integers) -> Rows:
    """Rows of a half that asks nothing and one of questions, which have these answers."""
    labels = np.concatenate([np.full_like(answers, IGNORED), answers], 1)
    return Rows(np.concatenate([told, questions], 1), labels)
