from typing import NamedTuple

import numpy as np
import pytest

from regard.core import OptionError
from regard.lab.data.listops import VOCABULARY, Grammar, generate_listops

SMALL = Grammar(min_length=20, max_length=120, max_depth=5)


@pytest.fixture(scope="module")
def published():
    return generate_listops(4000, Grammar(), seed=3)


def expression(tokens) -> str:
    return " ".join(VOCABULARY[token] for token in tokens)


def rows(found):
    return np.split(found.tokens, np.cumsum(found.lengths)[:-1])


class Read(NamedTuple):
    value: int
    depth: int = 0  # nested operators
    widest: int = 0  # arguments of an operator


def read_words(text: str) -> Read:
    """By recursion over the printed words; shares nothing with the generator."""
    words = text.split()

    def read(place: int) -> tuple[Read, int]:
        if not words[place].startswith("["):
            return Read(int(words[place])), place + 1
        operator, below, place = words[place][1:], [], place + 1
        while words[place] != "]":
            argument, place = read(place)
            below.append(argument)
        arguments = sorted(one.value for one in below)
        middle = len(arguments) // 2
        results = {
            "MIN": arguments[0],
            "MAX": arguments[-1],
            "MED": arguments[middle]
            if len(arguments) % 2
            else int((arguments[middle - 1] + arguments[middle]) / 2),
            "SM": sum(arguments) % 10,
        }
        assert len(arguments) >= 2
        depth, widest = 1 + max(one.depth for one in below), max(one.widest for one in below)
        return Read(results[operator], depth, max(widest, len(below))), place + 1

    found, end = read(0)
    assert end == len(words)
    return found


def test_values_are_those_of_the_printed_expressions():
    found = generate_listops(1500, SMALL)
    assert [read_words(expression(row)).value for row in rows(found)] == found.values.tolist()


def test_published_grammar(published):
    texts = [expression(row) for row in rows(published)[:300]]
    words = [word for text in texts for word in text.split()]
    operators = [word for word in words if word.startswith("[")]
    for name in ("[MIN", "[MAX", "[MED", "[SM"):
        assert operators.count(name) / len(operators) == pytest.approx(0.25, abs=0.01)
    found = [read_words(text) for text in texts]
    assert max(one.depth for one in found) == 9 and max(one.widest for one in found) == 10


@pytest.mark.parametrize(
    "options, words",
    [
        (
            {"min_length": 50, "max_length": 51},
            r"no length lies between min_length \(50\) and max_length \(51\)",
        ),
        ({"min_length": 122, "max_length": 900, "max_depth": 3}, "at most 122 tokens"),
        ({"min_length": 1, "max_length": 4}, "out of reach"),
    ],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        grammar = Grammar(**options)
        grammar.check()
        generate_listops(5, grammar)
