"""Language modelling in drawn orders, by the bits that a predicted byte costs."""

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.lab.data.records import IGNORED, Items, Ragged, Records
from regard.lab.data.windows import START, Windows
from regard.lab.tasks.language_models import Draws, LanguageModelling, OfStdlib
from regard.lab.tasks.task import Batch

CONTEXT = -1


class StdlibPermuted(OfStdlib, LanguageModelling):
    """Stdlib permuted: bytes of the Python standard library's source, predicted in drawn orders.

    One in `k` is a target, predicted from all context and from the targets before it in the window's own order. The batch
    holds `order`, the rank of each token, -1 for context; labels are the tokens themselves, not the next. The order of a
    window is part of the data, the same at every visit; the paper draws another each time.
    Files are split as in `stdlib_bytes`; results compare only at equal
    checksums. The bits are those of bytes that see both sides, and must not be compared with left-to-right ones.
    """

    name = "stdlib_permuted"
    kind = "permutation_language_model"

    k: int = 6

    def rows(self, windows: Windows, training: bool, draw: Draws) -> Records:
        """1 / k of every window are targets, in an order drawn evenly (arXiv 1906.08237); START is context always, and so is what stands in another window."""
        tokens = windows.tokens
        spared = (windows.tokens == START) | windows.again
        chance = np.where(spared, 2.0, draw.rng.random(tokens.shape))
        asked = chance.argsort(1)[:, : max(1, tokens.shape[1] // self.k)]
        order = np.full(tokens.shape, CONTEXT, np.int32)
        np.put_along_axis(order, asked, np.arange(asked.shape[1], dtype=np.int32)[None], axis=1)
        order[spared] = CONTEXT
        labels = np.where(order == CONTEXT, np.int32(IGNORED), tokens)
        columns = {
            "tokens": Ragged.even(tokens),
            "order": Ragged.even(order),
            "label": Ragged.even(labels),
        }
        return Records(columns, counted=("tokens",))

    def collate(self, items: Items) -> Batch:
        return super().collate(items) | {"order": torch.stack([item["order"] for item in items])}

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B T vocab"]:
        return model(batch["tokens"], order=batch["order"], valid=batch["valid"])
