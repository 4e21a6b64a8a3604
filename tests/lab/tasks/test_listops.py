"""ListOps: values and shapes of expressions, read anew from their printed words."""

from typing import NamedTuple

import numpy as np
import pytest

from regard.core import OptionError
from regard.lab.tasks.listops import VOCABULARY, ListOps


def texts(found):
    rows = np.split(found["tokens"], np.cumsum(found["lengths"])[:-1])
    return [" ".join(VOCABULARY[token] for token in row) for row in rows]


class Read(NamedTuple):
    value: int
    depth: int = 0  # nested operators
    widest: int = 0  # arguments of an operator


RULES = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: int(np.median(values)),
    "[SM": lambda values: sum(values) % 10,
}


def read_words(text: str) -> Read:
    """By recursion over the printed words; shares nothing with the generator."""
    words = text.split()

    def read(place: int) -> tuple[Read, int]:
        if not words[place].startswith("["):
            return Read(int(words[place])), place + 1
        rule, below, place = RULES[words[place]], [], place + 1
        while words[place] != "]":
            argument, place = read(place)
            below.append(argument)
        values, depths, widths = zip(*below, strict=True)
        assert len(values) >= 2
        return Read(rule(values), 1 + max(depths), max(*widths, len(values))), place + 1

    found, end = read(0)
    assert end == len(words)
    return found


def test_values_are_those_of_the_printed_expressions():
    found = ListOps(train_size=1500, min_length=20, max_length=120, max_depth=5).draw()
    assert [read_words(text).value for text in texts(found)] == found["values"].tolist()


def test_published_grammar():
    published = {"max_depth": 10, "min_length": 500, "max_length": 2000}
    sizes = {"train_size": 100, "valid_size": 100, "test_size": 100}
    found = texts(ListOps(**published, **sizes, seed=3).draw())
    words = [word for text in found for word in text.split()]
    operators = [word for word in words if word.startswith("[")]
    for name in RULES:
        assert operators.count(name) / len(operators) == pytest.approx(0.25, abs=0.01)
    _, depths, widths = zip(*map(read_words, found), strict=True)
    assert max(depths) == 9 and max(widths) == 10


@pytest.mark.parametrize(("options", "words"), [
    ({"min_length": 50, "max_length": 51}, r"no length .* min_length \(50\) and max_length \(51\)"),
    ({"min_length": 122, "max_length": 900, "max_depth": 3}, "at most 122 tokens"),
    ({"min_length": 1, "max_length": 4}, "out of reach"),
])  # fmt: skip
def test_impossible_options_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        ListOps(train_size=5, **options).draw()
