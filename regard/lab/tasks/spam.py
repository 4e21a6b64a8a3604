"""Spam: is an e-mail's body spam or ham? Byte-level classification of the SpamAssassin corpus."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from regard.core import OptionError
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.labelled import apart
from regard.lab.data.sources import archive
from regard.lab.data.spam import HARD, Email, read_emails, unique_emails
from regard.lab.tasks.byte_text import ByteText
from regard.lab.tasks.shares import Rows, stratified
from regard.lab.tasks.task import Splits

if TYPE_CHECKING:
    from torchmetrics import Metric


@dataclass(frozen=True, kw_only=True)
class Spam(ByteText):
    """Class 1 is spam. Bodies only: headers tell the answer.

    Balanced: all spam and as many easy ham, drawn by `seed`; a tenth of each for validation and for the test. What begins as
    an earlier body does, in the bytes that are read, is left out after the parts are drawn, and parts are balanced again: so
    no body changes its part with `length`, nor in `spam_masked`. test="hard_ham" asks, in the place of the test's easy ham,
    ham that looks like spam. The metric is macro-F1, so that no class counts more. `length` is REDUCED for small machines:
    the Long Range Arena reads 4,000 bytes of other texts (IMDb), and numbers must not be compared.
    """

    name = "spam"
    sources = ("spam_assassin",)
    num_classes = 2
    metric = "macro_f1"

    test: Literal["easy_ham", "hard_ham"] = "easy_ham"

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, length=self.length)
        if self.test not in ("easy_ham", "hard_ham"):
            raise OptionError(f"{self.name}: test ({self.test!r}) must be easy_ham or hard_ham")

    def load(self) -> Splits:
        return self.of(read_emails(archive("spam_assassin")))

    def of(self, emails: list[Email]) -> Splits:
        found = divided(emails, self.seed)
        spam = found.test[found.labels[found.test] == 1]
        test = np.concatenate([spam, found.hard]) if self.test == "hard_ham" else found.test
        rows = [found.train, found.valid, test]
        parts = apart(rows, key=lambda row: found.texts[row][: self.length])
        return Splits(
            *(
                self.part(found.texts, found.labels, _balanced(np.array(part, int), found.labels))
                for part in parts
            )
        )

    def meter(self) -> "Metric":
        from torchmetrics.classification import MulticlassF1Score

        return MulticlassF1Score(num_classes=2, average="macro")


class Divided(NamedTuple):
    """Rows of texts; `hard` are those of hard ham, which is in no part."""

    texts: list[bytes]
    labels: Rows
    train: Rows
    valid: Rows
    test: Rows
    hard: Rows


def divided(emails: list[Email], seed: int) -> Divided:
    """Bodies in parts, equal ones once; as much easy ham as spam, drawn by `seed`."""
    kept = unique_emails(emails)
    labels = np.array([email.spam for email in kept], dtype=np.int64)
    hard = np.array([email.folder == HARD for email in kept])
    spam = np.flatnonzero(labels == 1)
    ham = np.random.default_rng(seed).permutation(np.flatnonzero((labels == 0) & ~hard))
    chosen = np.sort(np.concatenate([spam, ham[: len(spam)]]))
    train, valid, test = (chosen[part] for part in stratified(labels[chosen], 0.1, 0.1, seed))
    texts = [email.body.lstrip() for email in kept]
    return Divided(texts, labels, train, valid, test, np.flatnonzero(hard))


def _balanced(rows: Rows, labels: Rows) -> Rows:
    """As many of the one class as of the other, the first of each."""
    of = [rows[labels[rows] == label] for label in (0, 1)]
    return np.concatenate([found[: min(map(len, of))] for found in of])
