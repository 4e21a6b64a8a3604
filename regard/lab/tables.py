"""Models of tables in scikit-learn's manner: fit, predict_proba, evaluate, save and load.

>>> model = TableClassifier(AutoIntConfig(), train=TrainConfig(steps=500, batch_size=256))
>>> model.fit(table, clicked).predict_proba(other)      # [n 2]; for K labels at once [n K]
>>> model.evaluate(other, clicked_there)["label"].auc

A table is a dict of columns or a pandas DataFrame. The schema is inferred on the rows that are trained on: a part of those
given to `fit` is held out, by which the best step is chosen. With one label (y [n]) `predict_proba` is that of any classifier;
with several (y [n K], NaN where one is missing) it holds a probability for each, as in MLPClassifier.
"""

from collections.abc import Collection, Hashable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any

import numpy as np
import torch
from jaxtyping import Float, Int
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.exceptions import NotFittedError
from torch import Tensor

from regard.core import (
    ABOVE_0,
    BELOW_1,
    OptionError,
    RegardError,
    ShapeError,
    StoredDataError,
    check_option,
    checked,
)
from regard.core.annotations import Range, annotations
from regard.lab.data.records import Integers, Records
from regard.lab.data.schema import Columns, Schema, cells, column_names, is_missing, row_count
from regard.lab.tasks.table import LABEL, Figures, TableTask, figures, table_splits
from regard.lab.tasks.tables import numbered
from regard.lab.tasks.task import DataSeed, Splits
from regard.lab.train import TrainConfig, fit
from regard.lab.train.checkpoint import Checkpoint, load, save
from regard.lab.train.launched import processes
from regard.lab.train.resume import capture, restore
from regard.lab.train.run import as_json, from_json
from regard.models import ModelConfig
from regard.models.generation import evaluating

Names = tuple[str, ...]
ROWS_AT_ONCE = 4096


class NotFitted(RegardError, NotFittedError):
    """Raised for a prediction before `fit`."""


@dataclass(eq=False, repr=False)
class TableClassifier(ClassifierMixin, BaseEstimator):
    """One or more yes-or-no labels of the rows of a table, by AutoInt, DIN, MMoE, a factorisation machine, logistic regression.

    model: a configuration without fields (num_tasks follows the labels). of: sequence column -> the column whose vocabulary
    it shares. numeric, min_count: as in Schema.infer. valid_share: of the rows, held out. seed: of the initial weights and of what is held out.
    """

    model: ModelConfig
    _: KW_ONLY
    train: TrainConfig | None = None
    of: Mapping[str, str] | None = None
    numeric: Collection[str] | None = None
    min_count: int = 1
    valid_share: Annotated[float, Range(ABOVE_0, BELOW_1, "between 0 and 1")] = 0.1
    seed: DataSeed = 0
    progress: bool = False

    def fit(self, X: Columns, y: Any) -> "TableClassifier":
        """Raises OptionError and ShapeError before anything is trained."""
        self._check()
        y, names, single = _labels(X, y)
        if names is None:
            names = (LABEL,) if single else tuple(f"{LABEL}_{k}" for k in range(y.shape[1]))
        order = np.random.default_rng(self.seed).permutation(len(y))
        held = max(1, round(self.valid_share * len(y)))
        parts = (order[held:], order[:held], order[:held])
        for part, rows in zip(("trained on", "held out"), parts, strict=False):
            _check_both_kinds(y[rows], names, part, self.valid_share)
        splits = table_splits(
            X, y, parts, of=self.of, numeric=self.numeric, min_count=self.min_count
        )
        if processes() > 1:
            raise OptionError("TableClassifier.fit trains in one process, without a launcher")
        kept = dict(vars(self))
        self._set(splits.schema, names, single)
        before = capture()
        try:  # the caller's own generators go on as if nothing had been drawn or seeded
            torch.manual_seed(self.seed)
            with TemporaryDirectory() as folder:
                facts = {"fields": splits.schema.fields, "num_tasks": len(names)}
                model = replace(self.model, **facts).build()
                self.result_ = fit(
                    model,
                    Given(labels=names),
                    self._training(len(parts[0])),
                    folder,
                    splits=splits,
                    progress=self.progress,
                )
        except BaseException:  # what was fitted before stays whole
            self.__dict__ = kept
            raise
        finally:
            restore(before)
        self.module_ = model.eval()
        return self

    def predict_proba(self, X: Columns) -> Float[NDArray, "n K"]:
        p = expit(self.decision_function(X))
        return np.stack([1 - p, p], 1) if p.ndim == 1 else p

    def predict(self, X: Columns) -> Integers:
        return (self.decision_function(X) > 0).astype(int)

    def decision_function(self, X: Columns) -> NDArray[np.floating]:
        """Log-odds, [n] for one label and [n K] for several."""
        self._check_fitted()
        rows = Records(self.schema_.columns(X))
        parts = torch.arange(len(rows)).split(ROWS_AT_ONCE)
        with evaluating(self.module_), torch.no_grad():
            found = [self.module_(rows.gather(part)) for part in parts]
        logits = torch.cat(found).double().numpy()
        return logits[:, 0] if self.single_ else logits

    def evaluate(self, X: Columns, y: Any, *, groups: Any = None) -> dict[str, Figures]:
        """Label -> AUC, log-loss, and AUC by group (user) where groups are given.

        Labels with names are found by them, in any order. Raises OptionError and ShapeError.
        """
        self._check_fitted()
        fitted = self.label_names_
        y, names, _ = _labels(X, y)
        if y.shape[1] != len(fitted):
            raise ShapeError(f"{y.shape[1]} labels are given, and {len(fitted)} were fitted")
        if sorted(names := names or fitted) != sorted(fitted):
            raise OptionError(
                f"labels are called {', '.join(names)}, and those fitted {', '.join(fitted)}"
            )
        codes = None if groups is None else _codes(groups, len(y))
        p = torch.from_numpy(expit(self.decision_function(X))).view(len(y), -1)
        given = torch.from_numpy(y[:, [names.index(name) for name in fitted]])
        return {name: figures(p[:, k], given[:, k], codes) for k, name in enumerate(fitted)}

    def score(self, X: Columns, y: Any) -> float:
        """Mean AUC of the labels."""
        return float(np.mean([found.auc for found in self.evaluate(X, y).values()]))

    @checked
    def save(self, folder: str | Path) -> None:
        """Writes weights, schema and configuration, without pickle, into a folder that is not there yet.

        Raises OptionError where they cannot be stored.
        """
        self._check_fitted()
        if Path(folder).exists():
            raise OptionError(f"{folder} is there already: save into another folder")
        fitted = self.module_.config  # `model` may be of the next fit
        if from_json(model := as_json(fitted)) is None:
            raise OptionError(f"{fitted} holds what is no name or number: it cannot be stored")
        state = {
            "model": model,
            "schema": self.schema_.plain(),
            "labels": self.label_names_,
            "single": self.single_,
        }
        save(Path(folder), Checkpoint(self.module_.state_dict(), {}, state))

    @classmethod
    @checked
    def load(cls, folder: str | Path) -> "TableClassifier":
        """Reads a folder written by `save`, for predictions: how it was trained is not stored. Raises StoredDataError."""
        stored = load(Path(folder))
        state = stored.state
        try:
            config: Any = from_json(state["model"])
            found = cls(replace(config, fields=(), num_tasks=1))
            schema = Schema.of_plain(config.fields, state["schema"])
            found._set(schema, tuple(state["labels"]), state["single"])
            found.module_ = config.build().eval()
            found.module_.load_state_dict(stored.model)
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise StoredDataError(f"{folder} holds no TableClassifier: {error!r}") from error
        return found

    def _set(self, schema: Schema, names: Names, single: bool) -> None:
        self.schema_ = schema
        self.label_names_ = names
        self.single_ = single
        two = np.array([0, 1])
        self.classes_ = two if single else [two for _ in names]
        self.n_features_in_ = len(schema.fields)

    def _training(self, rows: int) -> TrainConfig:
        size = min(256, rows)
        steps = max(1, 5 * rows // size)
        ours = TrainConfig(
            steps=steps, batch_size=size, lr=3e-3, eval_every=max(1, steps // 5), seed=self.seed
        )
        return replace(self.train or ours, log_dir=None)

    def _check(self) -> None:
        for name, kind in annotations(type(self).__init__).items():
            if name != "return":
                check_option("TableClassifier", name, getattr(self, name), kind)
        if "table" not in self.model.kinds:
            raise OptionError(f"TableClassifier: {self.model.name} is no model of tables")

    def _check_fitted(self) -> None:
        if not hasattr(self, "module_"):
            raise NotFitted("TableClassifier is not fitted yet: call fit first")


class Given(TableTask):
    """The task of rows that are given."""

    name = "given"
    labels: Names  # type: ignore[misc]  # an option here, a constant of the other tasks

    def load(self) -> Splits:
        raise OptionError("the rows are given to `fit`")


def _labels(X: Columns, y: Any) -> tuple[Float[NDArray, "n K"], Names | None, bool]:
    """Labels of the rows of X, their names where they have some, and whether there is one. 0, 1 or missing."""
    names = tuple(map(str, y)) if isinstance(y, Mapping) or hasattr(y, "columns") else None
    if len(set(names or ())) < len(names or ()):
        raise ShapeError(
            f"labels must have a name each, as text, and have {', '.join(names or ())}"
        )
    try:
        found = _floats(y) if names is None else np.stack([_floats(y[name]) for name in y], 1)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise OptionError(f"labels must be 0, 1 or missing, all of one length: {error}") from None
    if found.ndim not in (1, 2) or not found.size:
        raise ShapeError(f"y must have shape [n] or [n K], got {list(found.shape)}")
    wrong = found[~np.isnan(found) & ~np.isin(found, (0, 1))]
    if wrong.size:
        raise OptionError(f"labels must be 0, 1 or missing, got {wrong[0]:g}")
    for name in column_names(X):
        if (rows := row_count(name, X[name])) != len(found):
            raise ShapeError(f"column {name!r} has {rows} rows, and y has {len(found)}")
    return found.reshape(len(found), -1), names, found.ndim == 1


def _floats(values: Any) -> NDArray[np.floating]:
    """NaN where a value is masked. Raises what numpy does for other than numbers, and TypeError for complex ones."""
    if np.iscomplexobj(values):
        raise TypeError("complex numbers are none of them")
    return np.ma.filled(np.ma.array(values, dtype=float), np.nan)


def _check_both_kinds(
    y: Float[NDArray, "n K"], names: Names, part: str, valid_share: float
) -> None:
    """AUC needs both in the rows held out; in those trained on there is nothing to learn without."""
    for k, name in enumerate(names):
        ones = (y[:, k] == 1).sum()
        zeros = (y[:, k] == 0).sum()
        if not ones or not zeros:
            raise OptionError(
                f"{name}: of the {len(y)} rows {part}, {ones} are 1 and {zeros} are 0, and both are "
                f"needed. Give more rows, or another valid_share ({valid_share})"
            )


def _codes(groups: Any, rows: int) -> Int[Tensor, "n"]:
    """A number for each group."""
    values = cells("groups", groups)
    if len(values) != rows:
        raise ShapeError(f"groups has {len(values)} rows, and y has {rows}")
    for value in values:
        if is_missing(value) or not isinstance(value, Hashable):
            raise OptionError(f"groups must name a group for each row, got {value!r}")
    return torch.from_numpy(numbered(values)[0])


__all__ = ["Figures", "NotFitted", "TableClassifier"]
