"""Masked language modelling: predict hidden bytes (Devlin et al. 2018, arXiv 1810.04805).

Training hides other bytes each time that a window is seen, drawn from the global generator: a run that goes on after a
kill has its state back. In the validation and the test windows the hidden bytes are fixed, part of the data.
"""

from collections.abc import Iterable

import numpy as np
import torch
from torch import Tensor, nn

from regard.core import Part
from regard.lab.data.records import Examples
from regard.lab.data.windows import MASK, MASKED_VOCABULARY, START, Windows
from regard.lab.tasks.language_models import Draws, LanguageModelling, OfStdlib
from regard.lab.tasks.task import IGNORED, Batch, Loss
from regard.lab.tasks.texts import divided
from regard.models.corruption import corrupt
from regard.models.tokens import Valid


class MaskedLanguageModelling(LanguageModelling):
    """Token = byte + 1, 257 the start of a text, 258 the mask. Bits count the hidden bytes alone."""

    kind = "masked_language_model"
    metric = "bits_per_masked_byte"
    vocab_size = MASKED_VOCABULARY

    rate: Part = 0.15  # share of the bytes that are hidden

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Hides bytes anew in training mode; otherwise those that the batch hides."""
        if model.training:
            tokens, labels = self._corrupted(batch["tokens"], batch["valid"])
            if (labels != IGNORED).any():
                batch = batch | {"tokens": tokens, "labels": labels}
        return super().loss(model, batch)

    def _corrupted(
        self, tokens: Tensor, valid: Valid, draw: torch.Generator | None = None
    ) -> tuple[Tensor, Tensor]:
        return corrupt(
            tokens,
            mask_token=MASK,
            vocab_size=self.vocab_size,
            valid=valid,
            never=(START,),
            rate=self.rate,
            generator=draw,
        )

    def rows(self, windows: Windows, training: bool, draw: Draws) -> Examples:
        """Training rows are whole, and their labels all bytes."""
        if training:
            labels = np.where(windows.tokens == START, np.int32(IGNORED), windows.tokens)
            return Examples.windows(windows.tokens, labels)
        tokens = torch.from_numpy(windows.tokens).long()
        hidden = self._corrupted(tokens, torch.from_numpy(~windows.again), draw.torch)
        return Examples.windows(*(part.numpy() for part in hidden))


class StdlibMasked(OfStdlib, MaskedLanguageModelling):
    """Stdlib masked: hidden bytes of the Python standard library's own source.

    Files are split and windows cut as in `stdlib_bytes`; results compare only at equal checksums.
    """

    name = "stdlib_masked"


class SpamMasked(MaskedLanguageModelling):
    """Spam masked: hidden bytes of the e-mails that `spam` classifies, for training before it (arXiv 2310.02980).

    Equal seeds put the same bodies into the same parts as in `spam`: no test body is ever trained on.
    """

    name = "spam_masked"
    sources = ("spam_assassin",)

    def texts(self, rng: np.random.Generator) -> Iterable[list[bytes]]:
        texts, _, parts = divided(self.seed)
        return [[texts[row] for row in part] for part in parts]
