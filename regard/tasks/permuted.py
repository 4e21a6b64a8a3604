"""Language modelling in drawn orders, by the bits that an asked byte costs."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.data.permuted import CONTEXT, draw_orders
from regard.data.records import Ragged, Records
from regard.data.windows import START, Windows
from regard.tasks.language_model import LanguageModelling
from regard.tasks.task import IGNORED, Batch


@dataclass(frozen=True, kw_only=True)
class PermutedLanguageModelling(LanguageModelling):
    """One token in `k` is asked, each given all context and the asked tokens before it in the window's drawn order.

    The batch holds `order`, the rank of each token, -1 for context; labels are the tokens themselves, not the next. The
    order of a window is part of the data: the same at every visit.
    """

    kind = "permutation_language_model"

    k: int = 6

    def ordered(self, windows: Windows, rng: np.random.Generator) -> Records:
        tokens = windows.tokens
        drawn = draw_orders(tokens, self.k, rng, never=(START,))
        lengths = np.full(len(tokens), tokens.shape[1])
        columns = {"tokens": tokens, "order": drawn.order, "label": drawn.labels}
        return Records(
            {name: Ragged(column.ravel(), lengths) for name, column in columns.items()},
            counted=("tokens",),
        )

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        order = [item["order"] for item in items]
        padded = pad_sequence(order, batch_first=True, padding_value=CONTEXT)
        return super().collate(items) | {"order": padded}

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        logits = model(batch["tokens"], order=batch["order"], valid=batch["valid"]).float()
        return F.cross_entropy(
            logits.flatten(0, 1), batch["labels"].flatten(), ignore_index=IGNORED
        )
