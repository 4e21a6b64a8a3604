"""Dialogue: a speech of Shakespeare's -> the answer to it, by the bits that a byte of the answer costs."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from regard.lab.data.pairs import Pair
from regard.lab.data.plays import Turn, read_plays
from regard.lab.data.sources import archive
from regard.lab.tasks.text_pairs import BITS, TextPairs


@dataclass(frozen=True, kw_only=True)
class Dialogue(TextPairs):
    """Neighbouring speeches of two speakers in one scene; split by play.

    There is no one right answer, so that none is generated for the score: it is the cost of the answer which was given,
    its end included, in bits for each of its bytes. This does not depend on the vocabulary, as perplexity would.
    """

    name = "dialogue"
    better = "lower"
    baseline = "token frequencies"
    sources = ("shakespeare",)
    metrics = (BITS,)

    metric: str = BITS  # type: ignore[misc]
    source_len: int = 64
    target_len: int = 64
    valid_size: int = 500
    test_size: int = 2000

    def pairs(self) -> list[Pair]:
        plays = read_plays(archive("shakespeare"))
        return [pair for name, turns in plays.items() for pair in replies(turns, name)]


def replies(turns: Sequence[Turn], play: str) -> Iterator[Pair]:
    """Each speech and the answer of another speaker in the same scene, both in one line; the play is the group."""
    for turn, following in pairwise(turns):
        if turn.scene == following.scene and turn.speaker != following.speaker:
            yield Pair(" ".join(turn.text.split()), " ".join(following.text.split()), play)
