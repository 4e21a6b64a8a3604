"""Newsgroups masked: hidden bytes of the posts that `newsgroups` classifies, for training before it (arXiv 2310.02980)."""

from dataclasses import dataclass

from regard.lab.data.labelled import Texts
from regard.lab.data.newsgroups import unique_newsgroups
from regard.lab.data.sources import archive
from regard.lab.tasks.masked import MaskedLanguageModelling
from regard.lab.tasks.shares import stratified
from regard.lab.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class NewsgroupsMasked(MaskedLanguageModelling):
    """Equal seeds put the same posts into the same parts as in `newsgroups`: no test post is ever trained on."""

    name = "newsgroups_masked"
    sources = ("newsgroups20",)

    def load(self) -> Splits:
        found = unique_newsgroups(archive("newsgroups20"))
        return self.of(found["train"], found["test"])

    def of(self, train: Texts, test: Texts) -> Splits:
        rows, valid, _ = stratified(train.labels, 0.1, 0.0, self.seed)
        return self.of_texts(
            [train.texts[row] for row in rows], [train.texts[row] for row in valid], test.texts
        )
