"""Rows of a table with one or more yes-or-no labels: the base of these tasks, their figures and their baseline."""

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.data.records import Integers, Items, Records, gathered
from regard.lab.data.schema import Columns, Schema
from regard.lab.tasks.task import Batch, Loss, Splits, Task
from regard.nn.fields import FIRST_KNOWN, MISSING, Categorical

Each = Float[Tensor, "n"]  # of each row
Groups = Int[Tensor, "n"]  # the number of each row's group


@dataclass(frozen=True)
class Figures:
    """Figures of predicted probabilities: AUC, AUC by user, log-loss, calibration.

        GAUC = sum_u n_u AUC_u / sum_u n_u    over users u with both answers (Zhou et al. 2018, arXiv 1706.06978, section 6.3)

    Rows whose label is missing (NaN) are left out.
    """

    auc: float  # area under the ROC curve, 0 to 1
    gauc: float | None  # None where rows belong to nobody
    log_loss: float  # nats
    predicted_over_true: float  # mean probability over share of positives: 1 is calibrated
    rows: int  # with a label


def figures(probabilities: Each, labels: Each, groups: Groups | None = None) -> Figures:
    """Raises OptionError where the labels are not of both kinds."""
    from sklearn.metrics import log_loss

    known = ~labels.isnan()
    p = probabilities[known].double()
    y = labels[known].long()
    return Figures(
        auc=auc(p, y),
        gauc=None if groups is None else gauc(p, y, groups[known]),
        log_loss=float(log_loss(y.numpy(), p.clamp(1e-12, 1 - 1e-12).numpy())),
        predicted_over_true=float(p.mean() / y.double().mean()),
        rows=len(y),
    )


def auc(scores: Each, labels: Tensor) -> float:
    """Raises OptionError where the labels that are known are not of both kinds."""
    known = ~labels.isnan()
    return float(auc_items(scores[known].numpy(), labels[known].numpy()).mean())


def auc_items(scores: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Values of items whose mean is the area under the curve, and whose spread is that of DeLong's estimate (Biometrics 1988).

    Raises OptionError where the labels are not of both kinds.
    """
    from scipy.stats import rankdata

    positive = labels > 0.5
    n = int(positive.sum())
    m = int((~positive).sum())
    if not n * m:
        raise OptionError(f"AUC needs labels of both kinds: {n + m} are known, {n} of them 1")
    ranks = rankdata(scores)
    within = np.empty(len(scores))
    within[positive] = (ranks[positive] - rankdata(scores[positive])) / m
    within[~positive] = 1 - (ranks[~positive] - rankdata(scores[~positive])) / n
    area = within[positive].mean()
    share = np.where(positive, n, m) / len(scores)
    return area + (within - area) / share


def gauc(scores: Each, labels: Groups, groups: Groups) -> float | None:
    """The GAUC; None where no group has both answers."""
    _, sizes = torch.unique(groups, return_counts=True)
    order = groups.argsort(stable=True)
    parts = zip(*(x[order].split(sizes.tolist()) for x in (scores, labels)), strict=True)
    mixed = [(s, y) for s, y in parts if 0 < y.sum() < len(y)]
    if not mixed:
        return None
    return float(np.average([auc(s, y) for s, y in mixed], weights=[len(y) for _, y in mixed]))


def mean_auc(model: Any, known: Any, asked: Any, splits: Splits) -> float:
    """A classifier of scikit-learn's, fitted to each label; 1/2 for one of which training shows one kind."""
    found = []
    for label, answer in zip(splits.train.labels.T, splits.test.labels.T, strict=True):
        kept = ~label.isnan().numpy()
        scores = np.zeros(len(answer))
        if label[kept].unique().numel() > 1:
            scores = model.fit(known[kept], label.numpy()[kept]).decision_function(asked)
        found.append(auc(torch.from_numpy(scores), answer))
    return float(np.mean(found))


def _features(rows: Records, names: Sequence[str]) -> Iterator[dict[str, float]]:
    """Features of each row, under the number of a field: 1 for its id, its share in a sequence; a number, or 1 where it is missing."""
    for row in rows:
        found = {}
        for number, name in enumerate(names):
            values = row[name].reshape(-1).tolist()
            if row[name].is_floating_point():
                missing = math.isnan(values[0])
                found[f"{number} missing" if missing else f"{number}"] = (
                    1.0 if missing else values[0]
                )
            else:
                for value in values:
                    if value != MISSING:
                        key = f"{number} {value}"
                        found[key] = found.get(key, 0.0) + 1 / len(values)
        yield found


LABEL = "label"
GROUP = "group"


class Tabular(Task):
    """Rows of columns, and labels [K] of each row."""

    sides = {}

    @property
    def max_len(self) -> int:
        """The items of a history, where rows have one."""
        return getattr(self, "history", 1)

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B K"]:
        return model(batch["fields"]).float()

    def columns(self, model: nn.Module, batch: Batch) -> tuple[Tensor, ...]:
        """Answers and labels, [B K] each."""
        return self.answer(model, batch), batch["labels"]

    def measure(self, *columns: Tensor) -> float:
        """The mean of the items' scores."""
        return float(self.per_item(*columns).mean())

    def collate(self, items: Items) -> Batch:
        """{fields: {name: tensor}, labels [B K]} from items of one Records."""
        columns = gathered(items)
        columns.pop(GROUP, None)
        return {"labels": columns.pop(LABEL), "fields": columns}


class TableTask(Tabular):
    """Tables: rows of fields, and one or more yes-or-no labels of each; by the mean of the labels' AUC.

        loss = mean over labels k of the mean over rows of BCE(logit_k, y_k), rows without y_k left out

    The schema (vocabularies, scales) comes from the training rows alone. The baseline is scikit-learn's logistic regression on the same fields.

    labels: their names, in the order of a model's logits.
    """

    kind = "table"
    metric = "AUC"
    baseline = "logistic regression"
    labels: ClassVar[tuple[str, ...]]

    @property
    def facts(self) -> dict[str, Any]:
        return {"num_tasks": len(self.labels)}

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        logits, labels = self.columns(model, batch)
        known = ~labels.isnan()
        losses = F.binary_cross_entropy_with_logits(
            logits, torch.where(known, labels, 0.0), weight=known.float(), reduction="none"
        )
        return (losses.sum(0) / known.sum(0).clamp(min=1)).mean()

    def per_item(self, *columns: Tensor) -> Tensor:
        """Scores of each row, in the mean over labels; one without a label moves nothing."""
        logits, labels = columns
        found = []
        for score, label in zip(logits.double().numpy().T, labels.numpy().T, strict=True):
            known = ~np.isnan(label)
            items = auc_items(score[known], label[known])
            of_all = np.full(len(label), items.mean())
            of_all[known] += (items - items.mean()) * len(label) / known.sum()
            found.append(of_all)
        return torch.from_numpy(np.mean(found, 0))

    def trivial_baseline(self, splits: Splits) -> float:
        """AUC of scikit-learn's logistic regression on one-hot ids and scaled numbers."""
        from sklearn.feature_extraction import DictVectorizer
        from sklearn.linear_model import LogisticRegression

        names = [name for name in splits.train.columns if name not in (LABEL, GROUP)]
        ids = DictVectorizer()
        known = ids.fit_transform(_features(splits.train, names))
        asked = ids.transform(_features(splits.test, names))
        return mean_auc(LogisticRegression(max_iter=200), known, asked, splits)

    def boosted_trees(self, splits: Splits) -> float:
        """AUC of scikit-learn's HistGradientBoostingClassifier, at its defaults, on the same fields.

        Values beyond the 254 most frequent in training count as one; of a sequence, the trees see the length.
        """
        from sklearn.ensemble import HistGradientBoostingClassifier

        fields = splits.schema.fields
        columns = []
        for one in fields:
            found = [rows.column(one.name).numpy() for rows in (splits.train, splits.test)]
            if isinstance(one, Categorical):
                rank = np.argsort(np.argsort(-np.bincount(found[0], minlength=one.size)))
                found = [np.where(ids == MISSING, np.nan, rank.clip(max=254)[ids]) for ids in found]
            columns.append([x if x.ndim == 1 else (x != MISSING).sum(1) for x in found])
        kinds = [isinstance(one, Categorical) for one in fields]
        trees = HistGradientBoostingClassifier(categorical_features=kinds, random_state=0)
        known, asked = (np.stack(part, 1) for part in zip(*columns, strict=True))
        return mean_auc(trees, known, asked, splits)

    def read_as(self, splits: Splits) -> str:
        told = []
        for one in splits.schema.fields:
            size = getattr(getattr(one, "of", one), "size", None)
            values = "" if size is None else f" ({size - FIRST_KNOWN})"
            told.append(f"{one.name} {type(one).__name__.lower()}{values}")
        return ", ".join(told + [f"{getattr(self, name, name)} target" for name in self.labels])


def table_splits(
    table: Columns,
    labels: NDArray[np.floating],
    parts: Sequence[Integers],
    *,
    groups: Integers | None = None,
    of: Mapping[str, str] | None = None,
    numeric: Collection[str] | None = None,
    min_count: int = 1,
) -> Splits:
    """parts: rows of the training, validation and test part; the schema is inferred on the first. labels [n K], NaN: missing."""
    for name in (LABEL, GROUP):
        if name in table:
            raise OptionError(f"a column of a table cannot be called {name!r}")
    schema = Schema.infer(table, train=parts[0], of=of, numeric=numeric, min_count=min_count)
    columns = schema.columns(table) | {LABEL: labels}
    rows = Records(columns if groups is None else columns | {GROUP: groups})
    return Splits(*map(rows.take, parts), facts={"fields": schema.fields}, schema=schema)
