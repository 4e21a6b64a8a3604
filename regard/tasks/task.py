"""Task: data, loss and metric behind one interface."""

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal, TypedDict

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence

from regard.data.examples import Examples, checksum

IGNORED = -100
"""The label of a token of which nothing is asked."""


class Batch(TypedDict):
    tokens: Int[Tensor, "B T"]
    valid: Bool[Tensor, "B T"] | None  # None: every token exists
    labels: (
        Int[Tensor, "B"] | Int[Tensor, "B T"]
    )  # one each; or, for a language model, the next token or IGNORED


@dataclass(frozen=True)
class Splits:
    """The three parts of a task's data. `sha256` covers all their content; `notes` says what it depends on."""

    train: Examples
    valid: Examples
    test: Examples
    notes: Mapping[str, str] = field(default_factory=dict)
    sha256: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "sha256", checksum(self.train, self.valid, self.test))


@dataclass(frozen=True, kw_only=True)
class Task(ABC):
    """Base of every task: its fields are its options, and equal options give equal data.

    A model is called `model(tokens, valid=valid)`. Where `kind` is "classify" it answers logits
    [B num_classes]; where it is "language_model", logits [B T vocab_size] for the token after each token.
    Token 0 is padding and never data.
    """

    name: ClassVar[str]
    kind: ClassVar[Literal["classify", "language_model"]]
    metric: ClassVar[Literal["accuracy", "bits_per_byte"]]
    better: ClassVar[Literal["higher", "lower"]]
    vocab_size: ClassVar[int]
    num_classes: ClassVar[int | None] = None

    seed: int = 0  # of the data: order, splits, samples

    @property
    @abstractmethod
    def max_len(self) -> int:
        """The largest number of tokens in an example."""

    @abstractmethod
    def load(self) -> Splits:
        """The data. Reads or generates anew at each call; keep what it returns."""

    @abstractmethod
    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        """Mean loss of a batch, in nats."""

    @abstractmethod
    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """The metric over all batches, in evaluation mode; over all processes where there are several."""

    @abstractmethod
    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """The metric on the test split of what needs no model; `splits` saves loading them again."""

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """Pad on the right to the longest item."""
        tokens = [item["tokens"] for item in items]
        labels = [item["label"] for item in items]
        lengths = torch.tensor([len(row) for row in tokens])
        longest = int(lengths.max())
        return Batch(
            tokens=pad_sequence(tokens, batch_first=True),
            valid=None
            if int(lengths.min()) == longest
            else torch.arange(longest) < lengths[:, None],
            labels=pad_sequence(labels, batch_first=True, padding_value=IGNORED)
            if labels[0].dim()
            else torch.stack(labels),
        )
