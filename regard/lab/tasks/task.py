"""Task: data, loss and metric behind one interface."""

from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.core import OptionError
from regard.core.options import CheckedOptions, Range
from regard.lab.data.records import IGNORED, Data, Examples, checksum

Batch = dict[str, Any]
"""Tensors by name, or None in the place of a `valid` where every token exists. Each kind of task has its own names."""


TaskKind = Literal[
    "classify",
    "language_model",
    "masked_language_model",
    "permutation_language_model",
    "match",
    "documents",
    "translate",
    "table",
    "vectors",
]


KINDS: Mapping[str, str] = {
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
"""How a task of each kind calls its model. A model's configuration lists the kinds that it serves."""


@dataclass(frozen=True)
class Splits:
    """The three parts of a task's data. `sha256` covers all their content; `notes` names what it depends on."""

    train: Data
    valid: Data
    test: Data
    notes: Mapping[str, str] = field(default_factory=dict, kw_only=True)
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", checksum(self.train, self.valid, self.test))

    @property
    def facts(self) -> Mapping[str, Any]:
        """Fields of a model's configuration that are read off the data; a run fills them in."""
        return {}


DataSeed = Annotated[int, Range(0, 2**32 - 1, "an integer of at least 0 and below 2**32")]
"""What every generator takes."""


@dataclass(frozen=True, kw_only=True)
class Task(metaclass=CheckedOptions):
    """Base of every task: its fields are its options, and equal options give equal data.

    A model is called as KINDS says. Token 0 is padding and never data. `metric` names what `score` gives, and
    `better` its direction.
    """

    name: ClassVar[str]
    kind: ClassVar[TaskKind]
    metric: ClassVar[str]
    better: ClassVar[Literal["higher", "lower"]]
    baseline: ClassVar[str]  # what `trivial_baseline` answers, in two or three words
    sources: ClassVar[
        tuple[str, ...]
    ] = ()  # of `regard data ls`; none: generated, or a copy of one's own

    seed: DataSeed = 0  # of the data: order, splits, samples

    @property
    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """Fields that a model's configuration must hold as they are here: vocab_size, num_classes, fields ..."""

    @property
    @abstractmethod
    def max_len(self) -> int:
        """The largest number of tokens in a sequence: the least that a model's max_len must be."""

    @abstractmethod
    def load(self) -> Splits:
        """The data. Reads or generates anew at each call; keep what it returns.

        Raises MissingDataError where they are not here, StoredDataError or OptionError where they are not as expected.
        """

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Mean loss of a batch, in nats."""

    @abstractmethod
    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """The metric over all batches, in evaluation mode; over all processes where there are several.

        Raises OptionError where there is nothing to take it over.
        """

    def item_scores(self, model: nn.Module, batches: Iterable[Batch]) -> list[float]:
        """A score of each item, whose mean is the metric: what an interval takes the spread of items from.

        Raises OptionError where the metric is no mean over items.
        """
        raise OptionError(f"{self.name} gives no score of each item")

    @property
    def has_scores(self) -> bool:
        return type(self).item_scores is not Task.item_scores

    @abstractmethod
    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """The metric on the test split of what needs no model; `splits` saves loading them again."""

    def read_as(self, splits: Splits) -> str:
        """How the columns of a table, or of labelled texts, were read; empty for other data."""
        return ""

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """{tokens, valid, labels} from items {tokens, label}, padded on the right to the longest."""
        labels = [item["label"] for item in items]
        tokens, valid = padded([item["tokens"] for item in items])
        stacked = (
            pad_sequence(labels, batch_first=True, padding_value=IGNORED)
            if labels[0].dim()
            else torch.stack(labels)
        )
        return {"tokens": tokens, "valid": valid, "labels": stacked}

    def count(self, batch: Batch) -> int:
        """Tokens in a batch, padding left out: what a budget of tokens is spent on."""
        return count_valid(batch["tokens"], batch["valid"])


def ratio_items(sums: Sequence[float], counts: Sequence[float]) -> list[float]:
    """Values of items whose mean is r = sum(sums) / sum(counts), and whose spread is that of this ratio:

    r + (s_i - r c_i) / mean(c), the first terms of its expansion; s_i / c_i where all counts are equal. None where nothing counts.
    """
    s, c = np.asarray(sums, dtype=np.float64), np.asarray(counts, dtype=np.float64)
    if not c.sum():
        return []
    r = s.sum() / c.sum()
    return (r + (s - r * c) / c.mean()).tolist()


def padded(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor | None]:
    """[B T], zeros on the right; and what is valid, None where all is."""
    lengths = torch.tensor([len(row) for row in rows])
    longest = int(lengths.max())
    full = int(lengths.min()) == longest
    return (
        pad_sequence(list(rows), batch_first=True),
        None if full else torch.arange(longest) < lengths[:, None],
    )


def count_valid(tokens: Tensor, valid: Tensor | None) -> int:
    return tokens.numel() if valid is None else int(valid.sum())


@contextmanager
def evaluation(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; the model's own mode comes back afterwards."""
    training = model.training
    model.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        model.train(training)


@dataclass(frozen=True, kw_only=True)
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
    def parts(self) -> list[NDArray[np.integer]]:
        """The rows of training, validation and test."""
        borders = np.cumsum([self.train_size, self.valid_size])
        return np.split(np.arange(self.total), borders)

    def windows(self, tokens: NDArray[np.integer], labels: NDArray[np.integer]) -> Splits:
        """Splits of sequences of one length with a label for each token, both [total T]."""
        return Splits(*(Examples.windows(tokens[rows], labels[rows]) for rows in self.parts))
