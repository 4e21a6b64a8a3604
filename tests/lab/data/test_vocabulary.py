import pytest

from regard.lab.data.vocabulary import BEGIN, END, PAD, learn_vocabulary

TEXTS = [f"the {word} of the {word}s is in %s, see <b>{word}</b>" for word in "abcdefgh"] * 3
SIZE = 320


@pytest.fixture(scope="module")
def vocabulary():
    return learn_vocabulary(TEXTS, SIZE)


def test_every_text_can_be_read_back(vocabulary):
    for text in [
        *TEXTS,
        "Ἐν ἀρχῇ ἦν ὁ λόγος",
        "a\n\tb  c ",
        "%s<b>%d",
        "\x01\x7f é 漢字 \U0001f600",
        "",
    ]:
        (found,) = vocabulary.encode([text])
        assert vocabulary.decode(found) == text
        assert all(END < token < vocabulary.size for token in found)
    assert vocabulary.size <= SIZE


def test_tokens_of_words_keep_within_them(vocabulary):
    words = ["the", "λόγος", "of", "the", "unheard"]
    tokens, word_of = vocabulary.encode_words(words)
    assert vocabulary.decode(tokens) == " ".join(words)
    assert len(tokens) == len(word_of) and sorted(set(word_of)) == [0, 1, 2, 3, 4]
    for place, word in enumerate(words):
        own = [token for token, of in zip(tokens, word_of, strict=True) if of == place]
        assert vocabulary.decode(own).strip() == word


def test_decoding_ends_at_the_end_and_passes_over_marks(vocabulary):
    (found,) = vocabulary.encode(["the a"])
    assert vocabulary.decode([BEGIN, *found, PAD, vocabulary.size + 7, END, *found]) == "the a"
