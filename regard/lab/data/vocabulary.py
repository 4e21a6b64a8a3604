"""Byte pairs over bytes: a vocabulary learned from text, which every text can be written in and read back from.

Byte pair encoding: Sennrich et al. 2016 (arXiv 1508.07909); over bytes, as GPT-2's, no text is unknown. Learned by the
`tokenizers` library. Placeholders of the training texts (%s, %(name)d, {name}, {0:d}, <b>, &nbsp;) are tokens of their
own, so that an answer has them whole or not at all.
"""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from regard.core import OptionError, StoredDataError
from regard.lab.data.files import locked, reported, whole

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD, BEGIN, END = 0, 1, 2
_SPECIAL = ("\0pad", "\0begin", "\0end")  # no text holds a zero byte
_SMALLEST = len(_SPECIAL) + 256
_PLACEHOLDER = re.compile(
    r"%(?:\(\w{1,30}\)|\d+\$)?[-+#0]*\d*(?:\.\d+)?(?:ll|[hlzjt])?[diouxXeEfgGcrs](?![A-Za-z0-9])"
    r"|\{[A-Za-z0-9_.]{0,30}(?:![rsa])?(?::[^{}\s]{0,10})?\}"
    r"|</?[A-Za-z][A-Za-z0-9]{0,15}/?>"
    r"|&[a-z]{2,8};",
    re.ASCII,
)
_OFTEN = 5
"""So many times in the training texts makes a placeholder a token; at most an eighth of the vocabulary are such."""


class Words(NamedTuple):
    tokens: list[int]
    word_of: list[int]  # of each token, the number of the word that it is part of


class Vocabulary:
    """Ids 0, 1, 2 are padding, beginning and end; `size` counts all ids."""

    def __init__(self, tokenizer: "Tokenizer"):
        self._tokenizer = tokenizer

    @property
    def size(self) -> int:
        return self._tokenizer.get_vocab_size()

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """`decode` gives each text back as it was."""
        return [found.ids for found in self._tokenizer.encode_batch_fast(list(texts))]

    def encode_words(self, words: Sequence[str]) -> Words:
        """The words joined by spaces; no token reaches over a border of words."""
        spaced = [word if place == 0 else f" {word}" for place, word in enumerate(words)]
        found = self.encode(spaced)
        return Words(
            [token for tokens in found for token in tokens],
            [place for place, tokens in enumerate(found) for _ in tokens],
        )

    def decode(self, tokens: Sequence[int]) -> str:
        """The text up to the first end; padding, beginning and ids beyond the vocabulary are skipped."""
        tokens = list(tokens)
        if END in tokens:
            tokens = tokens[: tokens.index(END)]
        return self._tokenizer.decode([token for token in tokens if END < token < self.size])


def learn_vocabulary(texts: Sequence[str], size: int, cache: Path | None = None) -> Vocabulary:
    """At most `size` ids. A vocabulary that was learned from the same is read from the folder `cache`.

    Raises OptionError for too small a size, StoredDataError where the folder holds a damaged vocabulary.
    """
    import tokenizers

    if size <= _SMALLEST:
        raise OptionError(
            f"vocab_size ({size}) must be above {_SMALLEST}: the 256 bytes and {len(_SPECIAL)} marks"
        )
    if cache is None:
        return Vocabulary(_learn(texts, size))
    path = cache / f"{_key(texts, size, tokenizers.__version__)}.json"
    with locked(cache / "vocabulary"):
        if not path.is_file():
            with whole(path) as partial:
                content = _learn(texts, size).to_str().encode()
                partial.write_bytes(content + _seal(content))
    with reported(path, "read"):
        raw = path.read_bytes()
    content, seal = raw[:-_SEAL], raw[-_SEAL:]
    if seal != _seal(content):
        raise StoredDataError(
            f"{path} is not as it was written: cut short or altered. Remove it, and it is learned again."
        )
    return Vocabulary(tokenizers.Tokenizer.from_str(content.decode()))


def _seal(content: bytes) -> bytes:
    """The last line of the file."""
    return f"\n{sha256(content).hexdigest()}\n".encode()


_SEAL = len(_seal(b""))


def _learn(texts: Sequence[str], size: int) -> "Tokenizer":
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

    placeholders = find_placeholders(texts, (size - _SMALLEST) // 8)
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size - len(placeholders),
        special_tokens=list(_SPECIAL),
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator((_PLACEHOLDER.sub(" ", text) for text in texts), trainer)
    tokenizer.add_tokens([AddedToken(text, normalized=False) for text in placeholders])
    return tokenizer


def find_placeholders(texts: Iterable[str], limit: int) -> list[str]:
    """The most frequent first, those that are equally frequent by name."""
    counts = Counter(found for text in texts for found in _PLACEHOLDER.findall(text))
    often = [(-count, text) for text, count in counts.items() if count >= _OFTEN]
    return [text for _, text in sorted(often)[:limit]]


def _key(texts: Sequence[str], size: int, version: str) -> str:
    digest = sha256(f"{version} {size} {_OFTEN} {_PLACEHOLDER.pattern}".encode())
    for text in texts:
        digest.update(b"\0" + text.encode())
    return digest.hexdigest()
