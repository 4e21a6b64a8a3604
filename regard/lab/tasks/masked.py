"""Masked language modelling: predict hidden bytes (Devlin et al. 2018, arXiv 1810.04805).

Training hides other bytes each time that a window is seen, drawn from the global generator: a run that goes on after a
kill has its state back. In the validation and the test windows the hidden bytes are fixed, part of the data.
"""

import platform
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.options import Range
from regard.lab.data.python_source import read_modules, stdlib_root
from regard.lab.data.records import Examples
from regard.lab.data.sources import archive
from regard.lab.data.texts import Email, read_emails
from regard.lab.data.windows import MASK, MASKED_VOCABULARY, START, ByteWindows
from regard.lab.tasks.language_models import LanguageModelling, held_out
from regard.lab.tasks.task import IGNORED, Batch, Splits
from regard.lab.tasks.texts import divided
from regard.models.corruption import corrupt


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModelling(LanguageModelling):
    """Token = byte + 1, 257 the start of a text, 258 the mask. Bits count the hidden bytes alone."""

    kind = "masked_language_model"
    metric = "bits_per_masked_byte"
    vocab_size = MASKED_VOCABULARY

    rate: Annotated[float, Range(0, 1, "above 0 and at most 1", open_low=True)] = (
        0.15  # share of the bytes that are hidden
    )

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """In training mode bytes are hidden anew; otherwise those that the batch hides."""
        tokens, labels = batch["tokens"], batch["labels"]
        if model.training:
            tokens, labels = corrupt(
                tokens,
                mask_token=MASK,
                vocab_size=self.vocab_size,
                valid=batch["valid"],
                never=(START,),
                rate=self.rate,
            )
            if not (labels != IGNORED).any():
                labels = batch["labels"]
        logits = model(tokens, valid=batch["valid"]).float()
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)

    def of_texts(
        self, train: Sequence[bytes], valid: Sequence[bytes], test: Sequence[bytes]
    ) -> Splits:
        """Splits of texts whose parts are given."""
        rng = np.random.default_rng(self.seed)
        return self.masked(self.windows((train, valid, test), rng))

    def masked(self, parts: Iterable[ByteWindows], notes: dict[str, str] | None = None) -> Splits:
        train, valid, test = parts
        draw = torch.Generator().manual_seed(self.seed)
        return Splits(
            self._whole(train),
            self._hidden(valid, draw),
            self._hidden(test, draw),
            notes=notes or {},
        )

    def _whole(self, windows: ByteWindows) -> Examples:
        labels = np.where(windows.tokens == START, np.int32(IGNORED), windows.tokens)
        return Examples.windows(windows.tokens, labels)

    def _hidden(self, windows: ByteWindows, draw: torch.Generator) -> Examples:
        tokens, labels = corrupt(
            torch.from_numpy(windows.tokens).long(),
            mask_token=MASK,
            vocab_size=self.vocab_size,
            never=(START,),
            rate=self.rate,
            generator=draw,
        )
        return Examples.windows(tokens.numpy(), labels.numpy())


@dataclass(frozen=True, kw_only=True)
class StdlibMasked(MaskedLanguageModelling):
    """Stdlib masked: hidden bytes of the Python standard library's own source.

    Files are split and windows cut as in `stdlib_bytes`; results compare only at equal checksums.
    """

    name = "stdlib_masked"
    sources = ("stdlib",)

    def load(self) -> Splits:
        rng = np.random.default_rng(self.seed)
        parts = self.windows(held_out(read_modules(stdlib_root()), rng), rng)
        return self.masked(parts, {"cpython": platform.python_version()})


@dataclass(frozen=True, kw_only=True)
class SpamMasked(MaskedLanguageModelling):
    """Spam masked: hidden bytes of the e-mails that `spam` classifies, for training before it (arXiv 2310.02980).

    Equal seeds put the same bodies into the same parts as in `spam`: no test body is ever trained on.
    """

    name = "spam_masked"
    sources = ("spam_assassin",)

    def load(self) -> Splits:
        return self.of(read_emails(archive("spam_assassin")))

    def of(self, emails: Sequence[Email]) -> Splits:
        found = divided(list(emails), self.seed)
        return self.of_texts(
            *([found.texts[row] for row in part] for part in (found.train, found.valid, found.test))
        )
