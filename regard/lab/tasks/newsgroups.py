"""Newsgroups: to which of twenty groups was a post sent? Byte-level classification of 20 Newsgroups."""

from dataclasses import dataclass

import numpy as np

from regard.core import StoredDataError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.labelled import Texts, apart
from regard.lab.data.newsgroups import unique_newsgroups
from regard.lab.data.sources import archive
from regard.lab.tasks.byte_text import ByteText
from regard.lab.tasks.shares import stratified
from regard.lab.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class Newsgroups(ByteText):
    """The test part is the published one (later posts); a tenth of the training part, drawn by `seed`, is validation.

    Equal posts count once. What begins as an earlier post does, in the bytes that are read, is left out after the parts
    are drawn: so they are the same at every length, and for `newsgroups_masked`. The table holds lower-case letters and single spaces only.
    """

    name = "newsgroups"
    sources = ("newsgroups20",)
    num_classes = 20

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, length=self.length)

    def load(self) -> Splits:
        found = unique_newsgroups(archive("newsgroups20"))
        return self.of(found["train"], found["test"])

    def of(self, train: Texts, test: Texts) -> Splits:
        if len(train.classes) != self.num_classes or train.classes != test.classes:
            raise StoredDataError(
                f"newsgroups: train has {len(train.classes)} classes and test {len(test.classes)}, "
                f"and both should have the same {self.num_classes}"
            )
        rows, valid, none = stratified(train.labels, 0.1, 0.0, self.seed)
        assert not len(none)
        texts = [*train.texts, *test.texts]
        labels = np.concatenate([train.labels, test.labels])
        every = np.arange(len(train.texts), len(texts))
        parts = apart([rows, valid, every], key=lambda row: texts[row][: self.length])
        return Splits(*(self.part(texts, labels, np.array(part, dtype=int)) for part in parts))
