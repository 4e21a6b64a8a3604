"""Language modelling in drawn orders, by the bits that a predicted byte costs."""

import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.lab.data.python_source import read_modules, stdlib_root
from regard.lab.data.records import Ragged, Records
from regard.lab.data.synthetic import CONTEXT, draw_orders
from regard.lab.data.windows import START
from regard.lab.tasks.language_models import LanguageModelling, held_out
from regard.lab.tasks.task import Batch, Splits


@dataclass(frozen=True, kw_only=True)
class StdlibPermuted(LanguageModelling):
    """Stdlib permuted: bytes of the Python standard library's source, predicted in drawn orders.

    One in `k` is a target, predicted from all context and from the targets before it in the window's own order. The batch
    holds `order`, the rank of each token, -1 for context; labels are the tokens themselves, not the next. The order of a
    window is part of the data. In training it is the same at every visit, unless `redraw` draws another each time, as in the paper.
    `spans`: targets are runs of one to five bytes. `both_directions`: in training every second window of a batch is read
    backwards, as half of the paper's batches are. Files are split as in `stdlib_bytes`; results compare only at equal
    checksums. The bits are those of bytes that see both sides, and must not be compared with left-to-right ones.
    """

    name = "stdlib_permuted"
    sources = ("stdlib",)
    kind = "permutation_language_model"

    k: int = 6
    redraw: bool = False
    spans: bool = False
    both_directions: bool = False

    def load(self) -> Splits:
        rng = np.random.default_rng(self.seed)
        texts = held_out(read_modules(stdlib_root()), rng)
        parts = (self._ordered(part.tokens, rng) for part in self.windows(texts, rng))
        return Splits(*parts, notes={"cpython": platform.python_version()})

    def _ordered(self, tokens: np.ndarray, rng: np.random.Generator) -> Records:
        drawn = draw_orders(tokens, self.k, rng, never=(START,), spans=self.spans)
        lengths = np.full(len(tokens), self.length)
        columns = {"tokens": tokens, "order": drawn.order, "label": drawn.labels}
        return Records(
            {name: Ragged(column.ravel(), lengths) for name, column in columns.items()},
            counted=("tokens",),
        )

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        order = [item["order"] for item in items]
        padded = pad_sequence(order, batch_first=True, padding_value=CONTEXT)
        return super().collate(items) | {"order": padded}

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B T vocab"]:
        return model(batch["tokens"], order=batch["order"], valid=batch["valid"])

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        return super().loss(model, self.drawn_anew(batch) if model.training else batch)

    def drawn_anew(self, batch: Batch) -> Batch:
        """The batch as training sees it: orders from torch's global generator, so that a run that goes on has them again."""
        tokens, order, labels = batch["tokens"], batch["order"], batch["labels"]
        if self.redraw:
            rng = np.random.default_rng(int(torch.randint(2**62, ())))
            given = tokens.cpu().numpy()
            drawn = draw_orders(given, self.k, rng, never=(START,), spans=self.spans)
            order = torch.from_numpy(drawn.order).to(order)
            labels = torch.from_numpy(drawn.labels).to(labels)
        if self.both_directions:
            tokens, order, labels = (
                torch.stack([row.flip(0) if i % 2 else row for i, row in enumerate(x)])
                for x in (tokens, order, labels)
            )
        return batch | {"tokens": tokens, "order": order, "labels": labels}
