"""Newsgroups masked: hidden bytes of the posts that `newsgroups` classifies, for training before it (arXiv 2310.02980)."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from regard.data.labelled import Texts
from regard.data.newsgroups import unique_newsgroups
from regard.data.sources import archive
from regard.data.windows import Windows, cut, sample
from regard.tasks.byte_windows import HeldOut
from regard.tasks.masked import MaskedLanguageModelling
from regard.tasks.shares import stratified
from regard.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class NewsgroupsMasked(MaskedLanguageModelling):
    """Equal seeds put the same posts into the same parts as in `newsgroups`: no test post is ever trained on."""

    name = "newsgroups_masked"

    def load(self) -> Splits:
        found = unique_newsgroups(archive("newsgroups20"))
        return self.of(found["train"], found["test"])

    def of(self, train: Texts, test: Texts) -> Splits:
        rows, valid, _ = stratified(train.labels, 0.1, 0.0, self.seed)
        rng = np.random.default_rng(self.seed)

        def part(texts: Sequence[bytes], size: int | None) -> Windows:
            windows = cut(self.name, texts, self.length)
            return sample(windows, size or len(windows.tokens), rng)

        return self.masked(
            HeldOut(
                part([train.texts[row] for row in rows], None),
                part([train.texts[row] for row in valid], self.valid_size),
                part(test.texts, self.test_size),
            )
        )
