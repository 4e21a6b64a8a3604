"""ListOps expressions from their grammar (Nangia and Bowman 2018, arXiv 1804.06028; lengths of arXiv 2011.04006).

    tree(d)  =  digit                              if d = max_depth, or with probability 1 - operator_probability
             |  [OP tree(d+1) ... tree(d+1) ]      with 2 to max_args arguments, each count equally likely

tree(1) is the root; OP is uniform over MIN, MAX, MED (median, the mean of the middle two cut to an integer) and
SM (sum modulo 10). An operator counts two tokens, a digit one; an expression is kept if min_length < tokens <
max_length. Published: max_depth 10, max_args 10, operator_probability 0.25, lengths 500 and 2000.

A tree is written from left to right, and one that has outgrown max_length is dropped at once.
"""

from random import Random
from statistics import median
from typing import Annotated, Any

import numpy as np

from regard.core import LARGEST, Count, OptionError, Part, Range
from regard.lab.data.generated import bar, generated
from regard.lab.data.records import Examples, Integers, Ragged
from regard.lab.tasks.task import Classify, Drawn, Splits

VOCABULARY = ("<pad>", "<unknown>", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
_DIGIT = VOCABULARY.index("0")
_OPERATOR = VOCABULARY.index("[MIN")
_CLOSE = VOCABULARY.index("]")
_RULE = 3  # raised when the same options begin to give other expressions
_RARE = 10_000  # draws for each new expression beyond which the bounds count as out of reach
_PATIENCE = 250_000  # draws between two looks at that rate


class ListOps(Drawn, Classify):
    """ListOps: the value of a nested list expression, as classification over ten digits.

    Expressions from the published grammar; no expression is in two splits.

    The defaults are REDUCED for small machines (max_depth 6, 50 < tokens < 200, 20000 + 500 + 1000 examples) and
    must not be compared with published scores. The published setting (arXiv 2011.04006) is max_depth=10,
    min_length=500, max_length=2000, train_size=96000, valid_size=2000, test_size=2000. Expressions are generated once and
    kept in the cache.
    """

    name = "listops"
    vocab_size = len(VOCABULARY)
    num_classes = 10

    min_length: Count = 50  # tokens, exclusive, as in the published generator
    max_length: int = 200  # exclusive
    max_depth: int = 6  # nested operators
    max_args: Annotated[int, Range(2, LARGEST, "at least 2")] = 10  # arguments of an operator
    operator_probability: Part = 0.25  # of an operator in place of a digit

    def __post_init__(self):
        if self.max_length - self.min_length < 2:
            raise OptionError(
                f"listops: no length lies between min_length ({self.min_length}) and max_length ({self.max_length}), both exclusive"
            )
        longest = 1
        depth = 1
        while longest <= self.min_length and depth < self.max_depth:
            longest = 2 + self.max_args * longest
            depth += 1
        if longest <= self.min_length:
            raise OptionError(
                f"listops: min_length ({self.min_length}) is out of reach: at max_depth {self.max_depth} and max_args "
                f"{self.max_args} an expression has at most {longest} tokens"
            )

    @property
    def grammar(self) -> dict[str, Any]:
        names = ("min_length", "max_length", "max_depth", "max_args", "operator_probability")
        return {name: getattr(self, name) for name in names}

    @property
    def max_len(self) -> int:
        return self.max_length - 1

    def load(self) -> Splits:
        told = self.grammar | {"seed": self.seed, "count": self.total, "rule": _RULE}
        found = generated(self.name, told, self.draw)
        tokens = Ragged(found["tokens"], found["lengths"])
        return Splits(*(Examples(tokens[rows], found["values"][rows]) for rows in self.parts))

    def draw(self) -> dict[str, Integers]:
        """Different expressions, in an order shuffled by the seed: tokens [N] end to end, lengths [n], values [n] in 0..9.

        Raises OptionError where there are too few.
        """
        rng = Random(self.seed)
        count = self.total
        found = dict[bytes, int]()  # expression -> value
        draws = before = 0
        with bar("listops", count) as show:
            while len(found) < count:
                if draws == _PATIENCE:
                    if (len(found) - before) * _RARE < draws:
                        raise OptionError(
                            f"listops: {count} different expressions of {self.grammar} are out of "
                            f"reach: found {len(found)}, then fewer than "
                            f"one new in {_RARE} draws. Ask for fewer, or widen min_length and max_length."
                        )
                    draws = 0
                    before = len(found)
                draws += 1
                tokens, value = self.expression(rng)
                if self.min_length < len(tokens) < self.max_length and tokens not in found:
                    found[tokens] = value
                    show(len(found))
        chosen = rng.sample([*found], count)  # those found later are longer
        return {
            "tokens": np.frombuffer(b"".join(chosen), np.uint8),
            "lengths": np.array([*map(len, chosen)]),
            "values": np.array([*map(found.__getitem__, chosen)]),
        }

    def expression(self, rng: Random) -> tuple[bytes, int]:
        """A tree in prefix form, and its value; none of either where it outgrows max_length."""
        tokens = bytearray()
        open_ = list[tuple[int, int, list[int]]]()  # operator, how many arguments, their values
        while len(tokens) < self.max_length:
            grows = len(open_) + 1 < self.max_depth and rng.random() <= self.operator_probability
            value = rng.randrange(4 if grows else 10)
            tokens.append((_OPERATOR if grows else _DIGIT) + value)
            if grows:
                open_.append((value, rng.randint(2, self.max_args), []))
                continue
            while open_:
                operator, arguments, values = open_[-1]
                values.append(value)
                if len(values) < arguments:
                    break
                value = _apply(operator, sorted(values))
                tokens.append(_CLOSE)
                open_.pop()
            else:
                return bytes(tokens), value
        return b"", 0


def _apply(operator: int, values: list[int]) -> int:
    """values: in order."""
    return (values[0], values[-1], int(median(values)), sum(values) % 10)[operator]
