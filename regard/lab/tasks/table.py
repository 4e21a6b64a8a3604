"""Tables: rows of fields, and one or more yes-or-no labels of each; by the mean of the labels' AUC.

    loss = mean over labels k of the mean over rows of BCE(logit_k, y_k), rows without y_k left out

The schema (vocabularies, scales) comes from the training rows alone. `figures` gives more than `score`: AUC by
user, log-loss and calibration of each label. The baseline is scikit-learn's logistic regression on the same fields.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.data.rows import Rows, gathered
from regard.lab.data.schema import Schema, Table as Columns
from regard.lab.tasks.evaluation import evaluation
from regard.lab.tasks.figures import Figures, auc, figures
from regard.lab.tasks.linear_baseline import linear_scores
from regard.lab.tasks.task import Batch, Splits, Task

LABEL, GROUP = "label", "group"


@dataclass(frozen=True)
class TableSplits(Splits):
    """Splits of Rows, and the schema that encoded them."""

    schema: Schema = field(kw_only=True)

    @property
    def facts(self) -> Mapping[str, Any]:
        return {"fields": self.schema.fields}


@dataclass(frozen=True, kw_only=True)
class Table(Task):
    """labels: their names, in the order of a model's logits."""

    kind = "table"
    metric = "AUC"
    better = "higher"
    baseline = "logistic regression"
    labels: ClassVar[tuple[str, ...]]

    @property
    def facts(self) -> dict[str, Any]:
        return {"num_tasks": len(self.labels)}

    @property
    def max_len(self) -> int:
        return 1

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B K"]:
        """The model's logits."""
        return model(batch["fields"])

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        logits, labels = self.answer(model, batch).float(), batch["labels"]
        known = ~labels.isnan()
        losses = F.binary_cross_entropy_with_logits(
            logits, torch.where(known, labels, 0.0), weight=known.float(), reduction="none"
        )
        return (losses.sum(0) / known.sum(0).clamp(min=1)).mean()

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        logits, labels, _ = self._answers(model, batches)
        return float(np.mean([auc(logits[:, k], labels[:, k]) for k in range(labels.shape[1])]))

    def figures(self, model: nn.Module, batches: Iterable[Batch]) -> dict[str, Figures]:
        """Label -> its figures."""
        logits, labels, groups = self._answers(model, batches)
        probabilities = logits.double().sigmoid()
        return {
            name: figures(probabilities[:, k], labels[:, k], groups)
            for k, name in enumerate(self.labels)
        }

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """AUC of scikit-learn's logistic regression on one-hot ids and scaled numbers."""
        splits = splits or self.load()
        train, test = splits.train, splits.test
        assert isinstance(train, Rows) and isinstance(test, Rows)
        names = [name for name in train.columns if name not in (LABEL, GROUP)]
        scores = torch.from_numpy(linear_scores(train, test, names, train.labels))
        return float(np.mean([auc(scores[:, k], label) for k, label in enumerate(test.labels.T)]))

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """Of items of one Rows: {fields: {name: tensor}, labels [B K], groups [B] | None}."""
        columns = gathered(items)
        labels, groups = columns.pop(LABEL), columns.pop(GROUP, None)
        return {"fields": columns, "labels": labels, "groups": groups}

    def count(self, batch: Batch) -> int:
        """Rows in a batch."""
        return len(batch["labels"])

    def _answers(
        self, model: nn.Module, batches: Iterable[Batch]
    ) -> tuple[Float[Tensor, "n K"], Float[Tensor, "n K"], Tensor | None]:
        logits, labels, groups = [], [], []
        with evaluation(model):
            for batch in batches:
                logits.append(self.answer(model, batch).float().cpu())
                labels.append(batch["labels"].cpu())
                if batch["groups"] is not None:
                    groups.append(batch["groups"].cpu())
        if not logits:
            raise OptionError(f"{self.name}: score needs at least one batch, got none")
        return torch.cat(logits), torch.cat(labels), torch.cat(groups) if groups else None


def table_splits(
    table: Columns,
    labels: NDArray[np.floating],
    parts: Sequence[NDArray[np.integer]],
    *,
    groups: NDArray[np.integer] | None = None,
    of: Mapping[str, str] | None = None,
    numeric: Sequence[str] | None = None,
    min_count: int = 1,
    notes: Mapping[str, str] | None = None,
) -> TableSplits:
    """parts: rows of the training, validation and test part; the schema is inferred on the first. labels [n K], NaN: missing."""
    for name in (LABEL, GROUP):
        if name in table:
            raise OptionError(f"a column of a table cannot be called {name!r}")
    schema = Schema.infer(table, train=parts[0], of=of, numeric=numeric, min_count=min_count)
    columns = schema.columns(table) | {LABEL: labels}
    rows = Rows(columns if groups is None else columns | {GROUP: groups})
    train, valid, test = (rows.take(part) for part in parts)
    return TableSplits(train, valid, test, notes=notes or {}, schema=schema)
