"""Task: data, loss and metric behind one interface."""

import math
from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.core import Declared, OptionError, Options, Range, Scalar, ShapeError, shown
from regard.lab.data.records import IGNORED, Integers, Items, Records, checksum
from regard.models.generation import evaluating

Batch = dict[str, Any]
"""Tensors by name, or None in the place of a `valid` where every token exists. Each kind of task has its own names."""


Loss = Scalar
Columns = tuple[Tensor, ...]
"""What `measure` reads: values of each item."""


KINDS = {
    "classify": "model(tokens [B T], valid=) -> logits [B num_classes]",
    "language_model": "model(tokens [B T], valid=) -> logits [B T vocab_size] of the token after each",
    "masked_language_model": "model(tokens [B T], valid=) -> logits [B T vocab_size] of the token at each",
    "permutation_language_model": "model(tokens [B T], order=[B T], valid=) -> logits [B T vocab_size]",
    "match": "model(first [B S], second [B T], first_valid=, second_valid=) -> logits [B num_classes]",
    "documents": "model(tokens [B S T], valid=[B S T]) -> logits [B num_classes]",
    "translate": "model(source [B S], target [B T], valid=[B S], target_valid=) -> logits [B T vocab_size]",
    "table": "model(batch of fields) -> logits [B num_tasks]",
    "vectors": "model(x [B input_dim]) -> outputs [B num_tasks]",
}
"""The call of a model by a task of each kind. A model's configuration lists the kinds that it serves."""


@dataclass(frozen=True)
class Splits:
    """The three parts of a task's data. `sha256` covers all their content; `notes` names what it depends on.

    facts: fields of a model's configuration that are read off the data; a run fills them in. schema: what encoded a table.
    """

    train: Records
    valid: Records
    test: Records
    _: KW_ONLY
    notes: Mapping[str, str] = field(default_factory=dict)
    facts: Options = field(default_factory=dict)
    schema: Any = None
    sha256: str = field(init=False)

    def __post_init__(self):
        parts = {"training": self.train, "validation": self.valid, "test": self.test}
        if empty := [name for name, part in parts.items() if not len(part)]:
            raise OptionError(
                f"nothing is left for {' and '.join(empty)}: the data are too few, or alike in as many tokens as are read"
            )
        object.__setattr__(self, "sha256", checksum(*parts.values()))

    @staticmethod
    def of(task: "Task") -> "Splits":
        """The splits that the task loads. Raises OptionError where one's own task gives something else, or no batch of it."""
        found = task.load()
        if not hasattr(found, "train"):
            raise OptionError(f"{task.name}: load must return Splits, got {shown(found)}")
        if not type(task).__module__.startswith("regard."):
            batch = task.collate([found.train[0]])
            if not isinstance(batch, Mapping):
                raise OptionError(f"{task.name}: collate must return a mapping, got {shown(batch)}")
        return found


DataSeed = Annotated[int, Range(0, 2**32 - 1, "an integer of at least 0 and below 2**32")]
"""A seed that every generator takes."""


_CHANCES = dict[tuple[type, str, str], float]()


class Task(Declared):
    """Base of every task: its fields are its options, and equal options give equal data.

    A model is called as KINDS says. Token 0 is padding and never data. `metric` names what `score` gives, and
    `better` its direction.

    Args:
        seed: of the data: order, splits, samples
        train_size: items in the training part
        valid_size: items in the validation part
        test_size: items in the test part
    """

    name: ClassVar[str]
    kind: ClassVar[str]  # of KINDS
    metric: ClassVar[str] = "accuracy"
    better: ClassVar[Literal["higher", "lower"]] = "higher"
    baseline: ClassVar[str]  # what `trivial_baseline` answers, in two or three words
    sources: ClassVar[
        tuple[str, ...]
    ] = ()  # of `regard data ls`; none: generated, or a copy of one's own
    sides: ClassVar[Mapping[str, str]] = {"tokens": "valid"}
    """The sequences of an item that a model takes -> the names of their masks. Without one, a row counts as one token."""
    has_scores: ClassVar[bool] = True  # the metric is a mean over items: `item_scores` gives them
    smoothing: ClassVar[float] = 0.0  # share of a label's probability that is spread over all

    seed: DataSeed = 0

    @property
    def facts(self) -> dict[str, Any]:
        """Fields that a model's configuration must hold as they are here: vocab_size, num_classes, fields ..."""
        return {"vocab_size": self.vocab_size}  # type: ignore[attr-defined]

    @property
    def max_len(self) -> int:
        """The largest number of tokens in a sequence: the least that a model's max_len must be. Of most tasks the option `length`."""
        return self.length  # type: ignore[attr-defined]

    @abstractmethod
    def load(self) -> Splits:
        """The data. Reads or generates anew at each call; keep what it returns.

        Raises MissingDataError where they are not here, StoredDataError or OptionError where they are not as expected.
        """

    def answer(self, model: nn.Module, batch: Batch) -> Tensor:
        """The model's logits, or its numbers. `documents` are in a batch that is packed."""
        masks = {valid: batch[valid] for valid in self.sides.values()}
        masks |= {"documents": batch["documents"]} if "documents" in batch else {}
        return model(*(batch[name] for name in self.sides), **masks)

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        """Mean loss of a batch, in nats: the cross-entropy of its labels. Raises ShapeError where the model answers more or fewer."""
        logits = self.answer(model, batch).float().flatten(0, -2)
        labels = batch["labels"].flatten()
        if len(logits) != len(labels):
            raise ShapeError(
                f"{self.name}: the model gives {len(logits)} answers, and {len(labels)} are asked"
            )
        # A process's share of a batch may ask nothing.
        return F.cross_entropy(
            logits, labels, ignore_index=IGNORED, label_smoothing=self.smoothing, reduction="sum"
        ) / (labels != IGNORED).sum().clamp_min(1)

    def columns(self, model: nn.Module, batch: Batch) -> Columns:
        """The columns that `measure` reads, with a value for each item of a batch."""
        return self.compared(self.answer(model, batch).argmax(-1), batch["labels"])

    def compared(self, answers: Tensor, labels: Tensor) -> Columns:
        """Right answers of each item, and its labels: the metric is the ratio of their sums. No answer is IGNORED."""
        both = (answers == labels, labels != IGNORED)
        return tuple(found.reshape(len(labels), -1).sum(1) for found in both)

    def measure(self, *columns: Tensor) -> float:
        """The metric of all items: the ratio of the sums of two columns. Raises OptionError where there is nothing to take it over."""
        total, count = (float(column.double().numpy().sum()) for column in columns)
        if not count:
            raise self.nothing
        return total / count

    def per_item(self, *columns: Tensor) -> Tensor:
        """A score of each item, whose mean is the metric.

        r + (s_i - r c_i) / mean(c),   r = sum(s) / sum(c)      the first terms of the ratio's expansion; s_i / c_i where all c are equal
        """
        r, (sums, counts) = self.measure(*columns), (column.double() for column in columns)
        return (sums - r * (counts - counts.mean())) / counts.mean()

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """The metric over all batches, in evaluation mode. Raises OptionError where there is nothing to take it over."""
        return self.measure(*self.every(model, batches))

    def item_scores(self, model: nn.Module, batches: Iterable[Batch]) -> list[float]:
        """A score of each item, whose mean is the metric: what an interval takes the spread of items from.

        Raises OptionError where the metric is no mean over items.
        """
        if not self.has_scores:
            raise OptionError(f"{self.name} gives no score of each item")
        return self.per_item(*self.every(model, batches)).tolist()

    def every(self, model: nn.Module, batches: Iterable[Batch]) -> Columns:
        """The columns of all batches."""
        with evaluating(model), torch.no_grad():
            found = [[one.cpu() for one in self.columns(model, batch)] for batch in batches]
        if not found:
            raise self.nothing
        return tuple(map(torch.cat, zip(*found, strict=True)))

    @property
    def nothing(self) -> OptionError:
        """The error for no batch, or none with a label."""
        return OptionError(f"{self.name}: score needs at least one batch with a label, got none")

    def trivial_baseline(self, splits: Splits) -> float:
        """The metric on the test split of what needs no model: of the most frequent label of the training split."""
        seen, asked = (part.labels[part.labels != IGNORED] for part in (splits.train, splits.test))
        if not (len(seen) and len(asked)):
            raise self.nothing
        return self.measure(*self.compared(torch.bincount(seen).argmax().expand_as(asked), asked))

    def chance(self, splits: Splits) -> float:
        """`trivial_baseline`, computed once in a process for equal options and data. Raises OptionError for one that is not finite."""
        key = type(self), repr(self), splits.sha256
        if key not in _CHANCES:
            found = float(self.trivial_baseline(splits))
            if not math.isfinite(found):
                raise OptionError(f"{self.name}: trivial_baseline must be finite, got {found}")
            _CHANCES[key] = found
        return _CHANCES[key]

    def read_as(self, splits: Splits) -> str:
        """The columns of a table, or of labelled texts, as they were read; empty for other data."""
        return ""

    def collate(self, items: Items) -> Batch:
        """{tokens, valid, labels} from items {tokens, label}, padded on the right to the longest."""
        labels = [item["label"] for item in items]
        labelled = padded(labels, IGNORED)[0] if labels[0].dim() else torch.stack(labels)
        batch: Batch = {"labels": labelled}
        for name, valid in self.sides.items():
            batch[name], batch[valid] = padded([item[name] for item in items])
        return batch

    def count(self, batch: Batch) -> int:
        """Tokens in a batch, padding left out: what a budget of tokens is spent on."""
        return sum(
            batch[name].numel() if batch[valid] is None else int(batch[valid].sum())
            for name, valid in self.sides.items()
        ) or len(batch["labels"])


def padded(rows: Sequence[Tensor], value: int = 0) -> tuple[Tensor, Tensor | None]:
    """[B T], `value` on the right, T >= 1; and what is valid, None where all is."""
    lengths = torch.tensor([len(row) for row in rows])
    T = max(1, int(lengths.max()))
    valid = torch.arange(T) < lengths[:, None]
    longest = rows[0].new_empty(T)
    found = pad_sequence([*rows, longest], batch_first=True, padding_value=value)[:-1]
    return found, None if valid.all() else valid


class Drawn(Task):
    """Tasks whose examples are drawn from a seed, with the sizes of their parts.

    The first examples train, the next are for validation, the last for the test.
    """

    train_size: int = 20000
    valid_size: int = 500
    test_size: int = 1000

    @property
    def total(self) -> int:
        """Number of examples in all parts."""
        return self.train_size + self.valid_size + self.test_size

    @property
    def parts(self) -> list[Integers]:
        """The rows of training, validation and test."""
        return np.split(np.arange(self.total), np.cumsum([self.train_size, self.valid_size]))


class Classify(Task):
    """Classification of whole sequences."""

    kind = "classify"
    baseline = "most frequent class"
    vocab_size: ClassVar[int]
    num_classes: ClassVar[int]

    @property
    def facts(self) -> dict[str, Any]:
        return super().facts | {"num_classes": self.num_classes}
