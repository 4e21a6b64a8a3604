"""ListOps expressions from their grammar (Nangia and Bowman 2018, arXiv 1804.06028; lengths of arXiv 2011.04006).

    tree(d)  =  digit                              if d = max_depth, or with probability 1 - operator_probability
             |  [OP tree(d+1) ... tree(d+1) ]      with 2 to max_args arguments, each count equally likely

tree(1) is the root; OP is uniform over MIN, MAX, MED (median, the mean of the middle two cut to an integer) and
SM (sum modulo 10). An operator counts two tokens, a digit one; an expression is kept if min_length < tokens <
max_length. Published: max_depth 10, max_args 10, operator_probability 0.25, lengths 500 and 2000.

Trees are drawn many at once, level by level, and one that has outgrown max_length is dropped at once:
the same distribution as drawing them one by one, at a few array operations a level. They come in chunks, each from a
generator of its own.
"""

from typing import Annotated, Any, NamedTuple

import numpy as np

from regard.core import OptionError
from regard.core.options import LARGEST, Count, Part, Range
from regard.lab.data.generated import bar, generated
from regard.lab.data.records import Examples, Integers, Ragged
from regard.lab.tasks.task import Classify, Drawn, Splits, options

VOCABULARY = ("<pad>", "<unknown>", *"0123456789", "[MIN", "[MAX", "[MED", "[SM", "]")
_DIGIT = VOCABULARY.index("0")
_OPERATOR = VOCABULARY.index("[MIN")
_CLOSE = VOCABULARY.index("]")
_RULE = 2  # raised when the same options begin to give other expressions
_RARE = 10_000  # draws for each new expression beyond which the bounds count as out of reach
_PATIENCE = 250_000  # draws between two looks at that rate


@options
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

    def __post_init__(self) -> None:
        if self.max_length - self.min_length < 2:
            raise OptionError(
                f"listops: no length lies between min_length ({self.min_length}) and max_length ({self.max_length}), both exclusive"
            )
        longest, depth = 1, 1
        while longest <= self.min_length and depth < self.max_depth:
            longest, depth = 2 + self.max_args * longest, depth + 1
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
        tokens, values = Ragged(found["tokens"], found["lengths"]), found["values"]
        return Splits(*(Examples(tokens[rows], values[rows]) for rows in self.parts))

    def draw(self) -> dict[str, Integers]:
        """Different expressions, in an order shuffled by the seed: tokens [N] end to end, lengths [n], values [n] in 0..9.

        Raises OptionError where there are too few.
        """
        count, batch = self.total, max(64, min(16384, 2**22 // self.max_length))
        found: dict[bytes, int] = {}  # expression -> value
        draws = before = number = 0
        with bar("listops", count) as show:
            while len(found) < count:
                if draws >= _PATIENCE:
                    if (len(found) - before) * _RARE < draws:
                        raise OptionError(
                            f"listops: {count} different expressions of {self.grammar} are out of "
                            f"reach: found {len(found)}, then fewer than "
                            f"one new in {_RARE} draws. Ask for fewer, or widen min_length and max_length."
                        )
                    draws, before = 0, len(found)
                drawn = _draw(np.random.default_rng([self.seed, number]), batch, self)
                for tokens, value in zip(*_write(drawn), strict=True):
                    found.setdefault(tokens.tobytes(), value)
                draws, number = draws + batch, number + 1
                show(len(found))
        expressions, values = [*found], np.array([*found.values()])
        order = np.random.default_rng(self.seed).permutation(count)
        kept = [expressions[i] for i in order]
        tokens = np.frombuffer(b"".join(kept), dtype=np.uint8)
        return {"tokens": tokens, "lengths": np.array([*map(len, kept)]), "values": values[order]}


class _Level(NamedTuple):
    """The nodes of one depth; the arguments of its operators are the next level, in order."""

    tree: Integers
    arguments: Integers  # 0 for a digit
    symbol: Integers  # the digit, or the operator's index


def _draw(rng: np.random.Generator, batch: int, task: ListOps) -> list[_Level]:
    levels = []
    tree = np.arange(batch)
    tokens = np.ones(batch, dtype=np.int64)  # of each tree if everything not yet grown were a digit
    for depth in range(1, task.max_depth + 1):
        nodes = len(tree)
        arguments = rng.integers(2, task.max_args + 1, nodes)
        operators = (rng.random(nodes) <= task.operator_probability) & (depth < task.max_depth)
        arguments[~operators] = 0
        symbol = np.where(operators, rng.integers(0, 4, nodes), rng.integers(0, 10, nodes))
        levels.append(_Level(tree, arguments, symbol))
        np.add.at(tokens, tree[operators], 1 + arguments[operators])
        grows = operators & (tokens[tree] < task.max_length)
        tree = np.repeat(tree[grows], arguments[grows])
        if not len(tree):
            break
    keep = (tokens > task.min_length) & (tokens < task.max_length)
    kept = [_Level(*(column[keep[level.tree]] for column in level)) for level in levels]
    return [level for level in kept if len(level.tree)]


def _write(levels: list[_Level]) -> tuple[list[Integers], list[int]]:
    """The trees in prefix form, and their values."""
    if not levels:
        return [], []
    spans, values = _evaluate(levels)
    ends = np.cumsum(spans[0])
    tokens = np.empty(ends[-1], dtype=np.uint8)
    position = ends - spans[0]
    for depth, level in enumerate(levels):
        operators = level.arguments > 0
        tokens[position] = np.where(operators, _OPERATOR, _DIGIT) + level.symbol
        tokens[(position + spans[depth] - 1)[operators]] = _CLOSE
        if operators.any():
            below = spans[depth + 1]
            before = np.cumsum(below) - below
            arguments = level.arguments[operators]
            first = np.repeat(np.cumsum(arguments) - arguments, arguments)
            position = np.repeat(position[operators] + 1, arguments) + before - before[first]
    return np.split(tokens, ends[:-1]), values.tolist()


def _evaluate(levels: list[_Level]) -> tuple[list[Integers], Integers]:
    """Tokens under every node, level by level, and the value of every root; from the leaves up."""
    spans: list[Integers] = []
    values: Integers = np.empty(0, dtype=np.int64)
    for level in reversed(levels):
        operators = level.arguments > 0
        span, value = np.ones_like(level.symbol), level.symbol.copy()
        if operators.any():
            arguments = level.arguments[operators]
            starts = np.cumsum(arguments) - arguments
            span[operators] = 2 + np.add.reduceat(spans[0], starts)
            value[operators] = _apply(level.symbol[operators], values, starts, arguments)
        spans.insert(0, span)
        values = value
    return spans, values


def _apply(operator: Integers, values: Integers, starts: Integers, arguments: Integers) -> Integers:
    node = np.repeat(np.arange(len(starts)), arguments)
    ordered = values[np.lexsort((values, node))]
    median = (ordered[starts + (arguments - 1) // 2] + ordered[starts + arguments // 2]) // 2
    largest, total = ordered[starts + arguments - 1], np.add.reduceat(values, starts)
    return np.choose(operator, (ordered[starts], largest, median, total % 10))
