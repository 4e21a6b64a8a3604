"""Debian summary: the long description of a package -> its short one."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.lab.data.checks import check_sizes
from regard.lab.data.descriptions import read_descriptions, read_packages, summaries
from regard.lab.data.pairs import Pair
from regard.lab.data.sources import archive
from regard.lab.tasks.text_pairs import TextPairs, first_words, most_frequent


@dataclass(frozen=True, kw_only=True)
class DebianSummary(TextPairs):
    """Long texts of at least `min_long` words, short ones of at least `min_short`; split by source package.

    Long texts are cut to `source_len` tokens.
    """

    name = "debian_summary"
    baseline = "first words or most frequent target"
    sources = ("debian_descriptions",)
    cuts_source = True

    metric: str = "rouge_l"  # type: ignore[misc]
    source_len: int = 96
    target_len: int = 24
    min_long: int = 30
    min_short: int = 4

    def __post_init__(self) -> None:
        super().__post_init__()
        check_sizes(self.name, min_long=self.min_long, min_short=self.min_short)

    def pairs(self) -> list[Pair]:
        index = archive("debian_descriptions")
        return [
            pair
            for pair in summaries(
                read_packages(index.read("Packages").decode()),
                read_descriptions(index.read("Translation-en").decode(), "en"),
            )
            if len(pair.source.split()) >= self.min_long
            and len(pair.target.split()) >= self.min_short
        ]

    def trivial_answers(self, train: Sequence[Pair], sources: Sequence[str]) -> list[list[str]]:
        """The source's first words, and the most frequent summary."""
        return [first_words(train, sources), most_frequent(train, sources)]
