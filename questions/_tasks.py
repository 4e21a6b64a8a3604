"""Tasks that one of these questions asks alone (see `regard.lab.tasks.fingerprint`).

reach     a1 b2 c1 d2    ->  . . b b      each token names how many tokens before it the answer stands
parity    0 1 1 0 1      ->  0 1 0 0 1    whether the ones so far are odd
"""

from typing import ClassVar

import numpy as np

from regard.lab.data.records import IGNORED, Rows
from regard.lab.tasks.fingerprint import Ability, Lookup


class TwoBack(Lookup):
    """Two back: lookup in three segments. The first holds pairs; the second keys that have no label; the third `near` pairs, then as many
    questions of these, which need no memory, and questions of the first.
    """

    name = "two_back"
    segment: ClassVar[int] = 16
    near: ClassVar[int] = 4

    num_pairs: int = segment + near
    causal: bool = True

    @property
    def max_len(self) -> int:
        return 3 * self.segment

    def draw(self, count: int, rng: np.random.Generator) -> Rows:
        tokens, labels = super().draw(count, rng)
        pairs, asked = np.split(tokens, 2, 1)
        keys = 1 + self.num_values * self.num_keys + (pairs - 1) // self.num_values
        near = (asked[:, :, None] == keys[:, None, self.segment :]).any(2)
        order = np.argsort(~near, 1, kind="stable")[:, : self.segment - self.near]
        questions, answers = (
            np.take_along_axis(one, order, 1) for one in (asked, labels[:, self.num_pairs :])
        )
        blank = rng.integers(
            1 + self.num_values * self.num_keys, self.vocab_size, (count, self.segment)
        )
        told = np.concatenate([pairs[:, : self.segment], blank, pairs[:, self.segment :]], 1)
        labels = np.concatenate([np.full_like(told, IGNORED), answers], 1)
        return Rows(np.concatenate([told, questions], 1), labels)


class Reach(Ability):
    """Reach: the symbol that stands a named distance before. A token is a symbol and a distance; as many are asked as can be."""

    name = "reach"

    length: int = 64
    symbols: int = 8
    # rising; powers of two would suit strides and dilations
    distances: tuple[int, ...] = (1, 3, 6, 11, 19, 31)
    train_size: int = 32000

    @property
    def vocab_size(self) -> int:
        return 1 + self.symbols * len(self.distances)

    @property
    def num_classes(self) -> int:
        return self.symbols

    def draw(self, count: int, rng: np.random.Generator) -> Rows:
        symbols = rng.integers(0, self.symbols, (count, self.length))
        named = rng.integers(0, len(self.distances), symbols.shape)
        places = np.arange(self.length) - np.array(self.distances)[named]
        labels = np.take_along_axis(symbols, np.maximum(places, 0), 1)
        labels[:, : self.distances[-1]] = IGNORED
        return Rows(1 + len(self.distances) * symbols + named, labels)


class Parity(Ability):
    """Parity: at each bit whether the ones so far, its own included, are odd. Its answer needs a state, and no memory of tokens."""

    name = "parity"

    length: int = 40
    vocab_size: ClassVar[int] = 3
    num_classes: ClassVar[int] = 2

    def draw(self, count: int, rng: np.random.Generator) -> Rows:
        bits = rng.integers(0, 2, (count, self.length))
        return Rows(1 + bits, bits.cumsum(1) % 2)
