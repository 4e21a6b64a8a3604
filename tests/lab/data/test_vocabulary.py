import pytest

from regard.core import StoredDataError
from regard.lab.data.vocabulary import BEGIN, END, PAD, find_placeholders, learn_vocabulary

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


def test_placeholders_are_single_tokens(vocabulary):
    a, b = vocabulary.encode(["in %s or", "<b>"])
    assert len(b) == 1
    assert [vocabulary.decode([token]) for token in a].count("%s") == 1


def test_which_texts_are_placeholders():
    text = "100% of %d, %(name)s, %-5.2f, {name}, {0:d}, {}, <b>x</b>, a<b, &amp;, %ld, 5 % s"
    assert sorted(find_placeholders([text] * 5, 99)) == sorted(
        ["%d", "%(name)s", "%-5.2f", "{name}", "{0:d}", "{}", "<b>", "</b>", "&amp;", "%ld"]
    )
    assert find_placeholders([text] * 4, 99) == []
    assert find_placeholders([text] * 5 + ["%d"], 1) == ["%d"]


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


def test_the_cache_is_keyed_by_what_was_learned_from(tmp_path):
    first = learn_vocabulary(TEXTS, SIZE, tmp_path)
    (path,) = tmp_path.glob("*.json")
    before = path.stat().st_mtime_ns
    again = learn_vocabulary(TEXTS, SIZE, tmp_path)
    assert path.stat().st_mtime_ns == before
    assert again.encode(TEXTS[:3]) == first.encode(TEXTS[:3])
    learn_vocabulary(TEXTS[1:], SIZE, tmp_path)
    learn_vocabulary(TEXTS, SIZE - 1, tmp_path)
    assert len(list(tmp_path.glob("*.json"))) == 3
    content = path.read_bytes()
    token = content.index(b'"the"') + 1
    for damaged in (b"{}", content[:-9], content[:token] + b"T" + content[token + 1 :]):
        path.write_bytes(damaged)
        with pytest.raises(StoredDataError, match="Remove it"):
            learn_vocabulary(TEXTS, SIZE, tmp_path)
