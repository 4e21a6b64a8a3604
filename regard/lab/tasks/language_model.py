"""Causal language modelling, by the bits that a byte costs."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch
from torch import nn

from regard.core import OptionError
from regard.lab.tasks.evaluation import evaluation
from regard.lab.tasks.next_token import NextToken
from regard.lab.tasks.task import IGNORED, Batch, Splits


@dataclass(frozen=True, kw_only=True)
class LanguageModelling(NextToken):
    metric = "bits_per_byte"
    better = "lower"
    baseline = "byte frequencies"

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        from torchmetrics import MeanMetric

        nats = MeanMetric().set_dtype(torch.float64)
        asked = 0
        with evaluation(model):
            for batch in batches:
                count = int((batch["labels"] != IGNORED).sum())
                if count:
                    loss = self.loss(model, batch)
                    nats.to(loss.device).update(loss, weight=count)
                    asked += count
        if not asked:
            raise OptionError(f"{self.name}: score needs at least one label, got none")
        return float(nats.compute()) / math.log(2)

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """Bits of the test split under the training split's unigram frequencies (one added to each count)."""
        splits = splits or self.load()
        seen, asked = (part.labels[part.labels != IGNORED] for part in (splits.train, splits.test))
        counts = torch.bincount(seen, minlength=self.vocab_size).double() + 1
        return float(-(counts / counts.sum()).log2()[asked].mean())
