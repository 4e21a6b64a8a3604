"""Spam masked: hidden bytes of the e-mails that `spam` classifies, for training before it (arXiv 2310.02980)."""

from collections.abc import Sequence
from dataclasses import dataclass

from regard.lab.data.sources import archive
from regard.lab.data.spam import Email, read_emails
from regard.lab.tasks.masked import MaskedLanguageModelling
from regard.lab.tasks.spam import divided
from regard.lab.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class SpamMasked(MaskedLanguageModelling):
    """Equal seeds put the same bodies into the same parts as in `spam`: no test body is ever trained on."""

    name = "spam_masked"
    sources = ("spam_assassin",)

    def load(self) -> Splits:
        return self.of(read_emails(archive("spam_assassin")))

    def of(self, emails: Sequence[Email]) -> Splits:
        found = divided(list(emails), self.seed)
        return self.of_texts(
            *([found.texts[row] for row in part] for part in (found.train, found.valid, found.test))
        )
