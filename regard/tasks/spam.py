"""Spam: is an e-mail's body spam or ham? Byte-level classification of the SpamAssassin corpus."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from regard.data.checks import check_seed, check_sizes
from regard.data.labelled import first_of_each
from regard.data.sources import archive
from regard.data.spam import HARD, Email, read_emails, unique_emails
from regard.tasks.byte_text import ByteText
from regard.tasks.shares import stratified
from regard.tasks.task import Splits

if TYPE_CHECKING:
    from torchmetrics import Metric


@dataclass(frozen=True, kw_only=True)
class Spam(ByteText):
    """Class 1 is spam. Bodies only: headers tell the answer. Bodies that begin alike, in the bytes that are
    read, count once.

    Balanced: all spam and as many easy ham, drawn by `seed`; a tenth of each for validation and for the test. Hard ham
    is left out. The metric is macro-F1, so that no class counts more. `length` is REDUCED for small machines: the Long
    Range Arena reads 4,000 bytes of other texts (IMDb), and numbers must not be compared.
    """

    name = "spam"
    num_classes = 2
    metric = "macro_f1"

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, length=self.length)

    def load(self) -> Splits:
        return self.of(read_emails(archive("spam_assassin")))

    def of(self, emails: list[Email]) -> Splits:
        easy = (email for email in unique_emails(emails) if email.folder != HARD)
        emails = first_of_each(easy, key=lambda email: email.body.lstrip()[: self.length])
        labels = np.array([email.spam for email in emails], dtype=np.int64)
        rng = np.random.default_rng(self.seed)
        spam, ham = np.flatnonzero(labels == 1), rng.permutation(np.flatnonzero(labels == 0))
        chosen = np.sort(np.concatenate([spam, ham[: len(spam)]]))
        texts = [emails[row].body.lstrip() for row in chosen]
        rows = stratified(labels[chosen], 0.1, 0.1, self.seed)
        return Splits(*(self.part(texts, labels[chosen], part) for part in rows))

    def meter(self) -> "Metric":
        from torchmetrics.classification import MulticlassF1Score

        return MulticlassF1Score(num_classes=2, average="macro")
