"""Classification of texts by their first bytes.

Token = byte + 1. The vocabulary has the ids of the masked language models on bytes, start and mask among them, so that a
model trained to fill in bytes can go on as a classifier with the same embedding.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from regard.lab.data.checks import check_sizes
from regard.lab.data.examples import Examples
from regard.lab.data.windows import MASKED_VOCABULARY
from regard.lab.tasks.classify import Classify


@dataclass(frozen=True, kw_only=True)
class ByteText(Classify):
    vocab_size = MASKED_VOCABULARY

    length: int = 512  # bytes of a text that are read

    @property
    def max_len(self) -> int:
        return self.length

    def part(
        self, texts: Sequence[bytes], labels: NDArray[np.integer], rows: NDArray[np.integer]
    ) -> Examples:
        tokens, lengths = byte_tokens([texts[row] for row in rows], self.length)
        return Examples(tokens, lengths, labels[rows])


def byte_tokens(
    texts: Sequence[bytes], length: int
) -> tuple[NDArray[np.integer], NDArray[np.integer]]:
    """The first `length` bytes of all texts end to end, as tokens, and how many of each."""
    check_sizes("byte_tokens", length=length)
    cut = [text[:length] for text in texts]
    tokens = np.frombuffer(b"".join(cut), dtype=np.uint8).astype(np.int32) + 1
    return tokens, np.array([len(text) for text in cut], dtype=np.int64)
