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


def value_of(text: str) -> int:
    """By recursion over the printed words; shares nothing with the generator."""
    words = text.split()

    def read(place: int) -> tuple[int, int]:
        if not words[place].startswith("["):
            return int(words[place]), place + 1
        operator, arguments, place = words[place][1:], [], place + 1
        while words[place] != "]":
            argument, place = read(place)
            arguments.append(argument)
        arguments.sort()
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
        return results[operator], place + 1

    value, end = read(0)
    assert end == len(words)
    return value


def test_values_are_those_of_the_printed_expressions():
    found = generate_listops(1500, SMALL)
    assert [value_of(expression(row)) for row in rows(found)] == found.values.tolist()


def test_published_grammar(published):
    texts = [expression(row) for row in rows(published)[:300]]
    words = [word for text in texts for word in text.split()]
    operators = [word for word in words if word.startswith("[")]
    for name in ("[MIN", "[MAX", "[MED", "[SM"):
        assert operators.count(name) / len(operators) == pytest.approx(0.25, abs=0.01)
    deepest = max(
        int(np.cumsum([w.startswith("[") - (w == "]") for w in t.split()]).max()) for t in texts
    )
    assert deepest == 9
    assert max(value for text in texts for value in argument_counts(text)) == 10


def argument_counts(text: str) -> list[int]:
    counts, open_counts = [], [0]
    for word in text.split():
        if word == "]":
            counts.append(open_counts.pop())
            continue
        open_counts[-1] += 1
        if word.startswith("["):
            open_counts.append(0)
    return counts


def test_all_different_and_fixed_by_the_seed():
    one, same, other = (generate_listops(1000, SMALL, seed=seed) for seed in (0, 0, 1))
    texts = [expression(row) for row in rows(one)]
    assert len(set(texts)) == len(texts) == 1000
    assert np.array_equal(one.tokens, same.tokens) and np.array_equal(one.values, same.values)
    assert texts != [expression(row) for row in rows(other)]


@pytest.mark.parametrize(
    "options, words",
    [
        (
            {"min_length": 50, "max_length": 51},
            r"no length lies between min_length \(50\) and max_length \(51\)",
        ),
        ({"min_length": 122, "max_length": 900, "max_depth": 3}, "at most 122 tokens"),
        ({"max_args": 1}, r"max_args \(1\)"),
        ({"operator_probability": 0.0}, "operator_probability"),
        ({"min_length": 1, "max_length": 4}, "out of reach"),
    ],
)
def test_impossible_options_are_refused(options, words):
    with pytest.raises(OptionError, match=words):
        grammar = Grammar(**options)
        grammar.check()
        generate_listops(5, grammar)
