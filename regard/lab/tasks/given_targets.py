"""What the target that was given costs a model: bits for each of its bytes, whatever the vocabulary.

    score = -sum over target tokens of log2 p(token | source, tokens before) / sum over targets of (bytes + 1)

The end of a target is a token, and counts as a byte. No text is generated, so that a model is told from a better one
long before either says a sentence that is right.
"""

import math
from collections.abc import Iterable, Sequence

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.lab.data.vocabulary import Vocabulary
from regard.lab.tasks.task import IGNORED


class BitCount:
    """Summed batch by batch."""

    def __init__(self, vocabulary: Vocabulary):
        self.vocabulary = vocabulary
        self.nats, self.bytes = 0.0, 0

    def add(self, logits: Float[Tensor, "B T vocab"], labels: Int[Tensor, "B T"]) -> None:
        given = labels.flatten()
        lost = F.cross_entropy(logits.flatten(0, 1), given, ignore_index=IGNORED, reduction="sum")
        self.nats += float(lost)
        kept = ([token for token in row if token != IGNORED] for row in labels.tolist())
        self.bytes += byte_count(self.vocabulary, kept)

    @property
    def bits_per_byte(self) -> float:
        return self.nats / math.log(2) / self.bytes


def token_frequencies(
    vocabulary: Vocabulary, size: int, train: Sequence[Tensor], test: Sequence[Tensor]
) -> float:
    """Bits for each byte of the test targets under the frequencies of the training targets' tokens, one added to each."""
    counts = torch.bincount(torch.cat(list(train)), minlength=size).double() + 1
    bits = -(counts / counts.sum()).log2()[torch.cat(list(test))].sum()
    return float(bits) / byte_count(vocabulary, (target.tolist() for target in test))


def byte_count(vocabulary: Vocabulary, targets: Iterable[Sequence[int]]) -> int:
    """Of the targets, each with one for its end."""
    return sum(len(vocabulary.decode(target).encode()) + 1 for target in targets)
