"""Masked language modelling of bytes: what stood where bytes were hidden (Devlin et al. 2018, arXiv 1810.04805).

Training hides other bytes each time that a window is seen, drawn from the global generator: a run that goes on after a
kill has its state back. In the validation and the test windows the hidden bytes are fixed, part of the data.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OptionError
from regard.core.corruption import corrupt
from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.examples import Examples
from regard.lab.data.windows import MASK, MASKED_VOCABULARY, START, Windows, cut, sample
from regard.lab.tasks.byte_windows import HeldOut
from regard.lab.tasks.language_model import LanguageModelling
from regard.lab.tasks.task import IGNORED, Batch, Splits


@dataclass(frozen=True, kw_only=True)
class MaskedLanguageModelling(LanguageModelling):
    """Token = byte + 1, 257 the start of a text, 258 the mask. Bits are those of the asked bytes alone.

    Validation and test are REDUCED to samples of windows, drawn by `seed`; a number larger than there are takes all.
    """

    kind = "masked_language_model"
    metric = "bits_per_masked_byte"
    vocab_size = MASKED_VOCABULARY

    length: int = 256  # tokens in a window
    rate: float = 0.15  # of the bytes that are asked for
    valid_size: int = 256  # windows
    test_size: int = 512

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        sizes = {"valid_size": self.valid_size, "test_size": self.test_size}
        check_sizes(self.name, length=self.length, **sizes)
        if not 0 < self.rate <= 1:
            raise OptionError(f"{self.name}: rate ({self.rate!r}) must be above 0 and at most 1")

    @property
    def max_len(self) -> int:
        return self.length

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """In training mode of what is hidden anew, else of what the batch says."""
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
        """Of texts whose parts are decided already."""
        rng = np.random.default_rng(self.seed)

        def part(texts: Sequence[bytes], size: int | None) -> Windows:
            windows = cut(self.name, texts, self.length)
            return sample(windows, size or len(windows.tokens), rng)

        return self.masked(
            HeldOut(part(train, None), part(valid, self.valid_size), part(test, self.test_size))
        )

    def masked(self, parts: HeldOut, notes: dict[str, str] | None = None) -> Splits:
        draw = torch.Generator().manual_seed(self.seed)
        return Splits(
            self._whole(parts.train),
            self._hidden(parts.valid, draw),
            self._hidden(parts.test, draw),
            notes=notes or {},
        )

    def _whole(self, windows: Windows) -> Examples:
        labels = np.where(windows.tokens == START, np.int32(IGNORED), windows.tokens)
        return Examples.windows(windows.tokens, labels)

    def _hidden(self, windows: Windows, draw: torch.Generator) -> Examples:
        tokens, labels = corrupt(
            torch.from_numpy(windows.tokens).long(),
            mask_token=MASK,
            vocab_size=self.vocab_size,
            never=(START,),
            rate=self.rate,
            generator=draw,
        )
        return Examples.windows(tokens.numpy(), labels.numpy())
