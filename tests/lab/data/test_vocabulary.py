"""Byte pairs: every text is written and read back."""

import pytest

from regard.lab.data.vocabulary import BEGIN, END, PAD, learn_vocabulary

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
