"""Dialogue: a speech of Shakespeare's -> the answer to it, by the bits that a byte of the answer costs."""

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import nn

from regard.core import OptionError
from regard.data.pairs import Pair
from regard.data.plays import Turn, read_plays
from regard.data.sources import archive
from regard.tasks.evaluation import evaluation
from regard.tasks.task import IGNORED, Batch, Splits
from regard.tasks.text_pairs import TextPairs


@dataclass(frozen=True, kw_only=True)
class Dialogue(TextPairs):
    """Neighbouring speeches of two speakers in one scene; split by play.

    There is no one right answer, so that none is generated for the score: it is the cost of the answer which was given,
    its end included, in bits for each of its bytes. This does not depend on the vocabulary, as perplexity would.
    """

    name = "dialogue"
    metric = "bits_per_byte"
    better = "lower"
    baseline = "token frequencies"
    sources = ("shakespeare",)

    source_len: int = 64
    target_len: int = 64
    valid_size: int = 500
    test_size: int = 2000

    def pairs(self) -> list[Pair]:
        plays = read_plays(archive("shakespeare"))
        return [pair for name, turns in plays.items() for pair in replies(turns, name)]

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        nats, size = 0.0, 0
        with evaluation(model):
            for batch in batches:
                logits = self.answer(model, batch).flatten(0, 1)
                labels = batch["labels"].flatten()
                nats += float(
                    F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum")
                )
                size += self._bytes(batch["labels"].tolist())
        if not size:
            raise OptionError(f"{self.name}: score needs at least one batch, got none")
        return nats / math.log(2) / size

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Bits under the frequencies of the training answers' tokens (one added to each count)."""
        splits = splits or self.load()
        train, test = (
            [part[i]["target"] for i in range(len(part))] for part in (splits.train, splits.test)
        )
        counts = torch.bincount(torch.cat(train), minlength=self.vocab_size).double() + 1
        bits = -(counts / counts.sum()).log2()[torch.cat(test)].sum()
        return float(bits) / self._bytes([target.tolist() for target in test])

    def _bytes(self, targets: list[list[int]]) -> int:
        """Of the answers, each with one for its end."""
        kept = ([token for token in target if token != IGNORED] for target in targets)
        return sum(len(self.vocabulary.decode(target).encode()) + 1 for target in kept)


def replies(turns: Sequence[Turn], play: str) -> Iterator[Pair]:
    """Each speech and the answer of another speaker in the same scene, both in one line; the play is the group."""
    for turn, following in pairwise(turns):
        if turn.scene == following.scene and turn.speaker != following.speaker:
            yield Pair(" ".join(turn.text.split()), " ".join(following.text.split()), play)
