"""Byte pairs over bytes: a vocabulary learned from text, which every text can be written in and read back from.

Byte pair encoding: Sennrich et al. 2016 (arXiv 1508.07909); over bytes, as GPT-2's, no text is unknown. Learned by the
`tokenizers` library.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import TYPE_CHECKING

from regard.core import OptionError

if TYPE_CHECKING:
    from tokenizers import Tokenizer

PAD = 0
BEGIN = 1
END = 2
_SPECIAL = ["\0pad", "\0begin", "\0end"]  # no text holds a zero byte
_SMALLEST = len(_SPECIAL) + 256


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

    def encode_words(self, words: Sequence[str]) -> tuple[list[int], list[int]]:
        """Tokens of the words joined by spaces, none over a border of words; and the number of the word that each is part of."""
        spaced = [*words[:1], *(f" {word}" for word in words[1:])]
        found = self._tokenizer.encode(spaced, is_pretokenized=True)
        return found.ids, found.word_ids  # type: ignore[return-value]  # no token is of no word

    def decode(self, tokens: Sequence[int]) -> str:
        """The text up to the first end; padding, beginning and ids beyond the vocabulary are skipped."""
        text = takewhile(lambda token: token != END, tokens)
        return self._tokenizer.decode([token for token in text if END < token < self.size])


def learn_vocabulary(texts: Sequence[str], size: int) -> Vocabulary:
    """Learns at most `size` ids. Raises OptionError for too small a size."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    if size <= _SMALLEST:
        raise OptionError(
            f"vocab_size ({size}) must be above {_SMALLEST}: the 256 bytes and {len(_SPECIAL)} marks"
        )
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=_SPECIAL,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return Vocabulary(tokenizer)
