"""How texts are kept: items of a split, windows of bytes, pairs, and a vocabulary of byte pairs."""

import numpy as np
import pytest
import torch

from regard.core import OptionError
from regard.lab.data.pairs import Pair, split_pairs
from regard.lab.data.records import Examples, Ragged, checksum
from regard.lab.data.splits import split_of
from regard.lab.data.vocabulary import BEGIN, END, PAD, learn_vocabulary
from regard.lab.data.windows import IGNORED, START, cut

TOKENS, LENGTHS, LABELS = np.array([5, 6, 7, 8, 9, 4]), np.array([3, 1, 2]), np.array([1, 0, 2])


def test_items_are_cut_where_the_lengths_say():
    tokens = Ragged(TOKENS, LENGTHS)
    examples = Examples(tokens, LABELS)
    assert [item["tokens"].tolist() for item in examples] == [[5, 6, 7], [8], [9, 4]]
    assert [int(item["label"]) for item in examples] == [1, 0, 2]
    assert examples[-1]["tokens"].tolist() == [9, 4] and examples.lengths.tolist() == [3, 1, 2]
    assert examples[0]["tokens"].dtype == examples[0]["label"].dtype == torch.int64
    with pytest.raises(IndexError):
        examples[3]
    each = Examples(tokens, Ragged(np.array([6, 7, -100, -100, 4, -100]), LENGTHS))
    assert [item["label"].tolist() for item in each] == [[6, 7, -100], [-100], [4, -100]]


def test_windows_of_one_token_have_a_label_of_each_token():
    windows = Examples.windows(np.array([[5], [6]]), np.array([[6], [7]]))
    assert [item["label"].tolist() for item in windows] == [[6], [7]]


@pytest.mark.parametrize(("place", "value"), [(0, [5, 6, 7, 8, 9, 3]), (1, [2, 2, 2]), (2, [1, 0, 3])])  # fmt: skip
def test_the_checksum_sees_tokens_borders_and_labels(place, value):
    given = [TOKENS, LENGTHS, LABELS]

    def examples():
        tokens, lengths, labels = given
        return Examples(Ragged(tokens, lengths), labels)

    one, same = examples(), examples()
    given[place] = np.array(value)
    other = examples()
    assert checksum(one) == checksum(same) != checksum(other)
    assert checksum(one, other) != checksum(other, one)


STREAM = [b"alpha", b"bc", bytes(range(256)), b"omega omega"]


@pytest.mark.parametrize("length", [1, 2, 7, 16, 64, 276, 277])
def test_every_byte_is_asked_for_once_and_in_order_by_the_token_before_it(length):
    tokens, labels, again = cut("x", STREAM, length)
    stream = [symbol for text in STREAM for symbol in (START, *(byte + 1 for byte in text))]
    assert tokens[~again].tolist() == stream[:-1]  # no token is in two windows
    assert tokens.shape == labels.shape and tokens.shape[1] == length
    asked = labels != IGNORED
    assert bytes((labels[asked] - 1).tolist()) == b"".join(STREAM) and START not in labels
    inside = asked[:, :-1]
    assert np.array_equal(labels[:, :-1][inside], tokens[:, 1:][inside])
    assert (tokens == START).sum() >= len(STREAM) - 1


def test_too_long_a_window_is_refused():
    with pytest.raises(OptionError, match=r"length \(400\)"):
        cut("x", STREAM, 400)


def test_a_source_counts_once_whatever_its_case_and_spacing():
    pairs = [Pair("Open  file", "a", "x"), Pair("open file", "b", "x"), Pair("Open", "c", "x")]
    assert split_pairs(pairs)[split_of("x")] == [pairs[0], pairs[2]]


def test_groups_stay_whole_and_shares_are_eight_one_one():
    parts = split_pairs(Pair(f"{i} {j}", "t", f"group {i}") for i in range(2000) for j in range(3))
    groups = {name: {pair.group for pair in part} for name, part in parts.items()}
    assert sum(map(len, parts.values())) == 6000 and sum(map(len, groups.values())) == 2000
    for name, share in (("train", 0.8), ("valid", 0.1), ("test", 0.1)):
        assert len(groups[name]) == pytest.approx(2000 * share, rel=0.2)


TEXTS = [f"the {word} of the {word}s is in %s, see <b>{word}</b>" for word in "abcdefgh"] * 3
ODD = ["Ἐν ἀρχῇ ἦν ὁ λόγος", "a\n\tb  c ", "%s<b>%d", "\x01\x7f é 漢字 \U0001f600", ""]


@pytest.fixture(scope="module")
def vocabulary():
    return learn_vocabulary(TEXTS, 320)


def test_every_text_can_be_read_back_up_to_its_end(vocabulary):
    assert vocabulary.size <= 320
    for text in [*TEXTS, *ODD]:
        (found,) = vocabulary.encode([text])
        assert vocabulary.decode(found) == text
        assert all(END < token < vocabulary.size for token in found)
        assert vocabulary.decode([BEGIN, *found, PAD, vocabulary.size + 7, END, *found]) == text


def test_tokens_of_words_keep_within_them(vocabulary):
    words = ["the", "λόγος", "of", "the", "unheard"]
    tokens, word_of = vocabulary.encode_words(words)
    assert vocabulary.decode(tokens) == " ".join(words) and len(tokens) == len(word_of)
    for place, word in enumerate(words):
        own = [token for token, of in zip(tokens, word_of, strict=True) if of == place]
        assert vocabulary.decode(own).strip() == word
