"""Matching: do two texts belong together? Byte-level classification of pairs, by accuracy."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.lab.data.checks import check_seed, check_sizes
from regard.lab.data.labelled import TextPairs
from regard.lab.data.records import Ragged, Records
from regard.lab.data.windows import MASKED_VOCABULARY
from regard.lab.tasks.byte_text import byte_tokens
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.task import Batch, count_valid, padded


@dataclass(frozen=True, kw_only=True)
class Match(Classify):
    """Token = byte + 1. `length` is REDUCED for small machines: the Long Range Arena reads 4,000 bytes of each text."""

    kind = "match"
    num_classes = 2
    vocab_size = MASKED_VOCABULARY

    length: int = 512  # bytes of each text that are read

    def __post_init__(self) -> None:
        check_seed(self.name, self.seed)
        check_sizes(self.name, length=self.length)

    @property
    def max_len(self) -> int:
        return self.length

    def part(self, pairs: TextPairs) -> Records:
        first, second = (byte_tokens(of, self.length) for of in (pairs.first, pairs.second))
        columns: dict[str, Any] = {
            "first": Ragged(*first),
            "second": Ragged(*second),
            "label": pairs.labels,
        }
        return Records(columns, counted=("first", "second"))

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B num_classes"]:
        return model(
            batch["first"],
            batch["second"],
            first_valid=batch["first_valid"],
            second_valid=batch["second_valid"],
        )

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """{first, first_valid, second, second_valid, labels}."""
        batch: Batch = {"labels": torch.stack([item["label"] for item in items])}
        for name in ("first", "second"):
            batch[name], batch[f"{name}_valid"] = padded([item[name] for item in items])
        return batch

    def count(self, batch: Batch) -> int:
        return sum(count_valid(batch[name], batch[f"{name}_valid"]) for name in ("first", "second"))
