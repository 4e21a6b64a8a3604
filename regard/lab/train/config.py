"""The configuration of a training run."""

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from regard.core import OptionError
from regard.lab.data.checks import check_seed
from regard.nn.disagreement import Kind

_COUNTS = (
    "steps",
    "tokens",
    "batch_size",
    "eval_every",
    "patience",
    "checkpoint_every",
    "keep",
    "log_every",
    "bucket",
    "average",
)
_OPTIONAL = ("steps", "tokens", "patience", "clip", "bucket", "average")
Schedule = Literal["cosine", "linear", "noam"]


@dataclass(frozen=True, kw_only=True)
class TrainConfig:
    """Budget, optimiser and bookkeeping of one run; exactly one of `steps` and `tokens` is the budget.

    Raises OptionError naming the field whose value cannot be used.
    """

    steps: int | None = None
    tokens: int | None = (
        None  # the run ends with the step in which the items' tokens reach this number
    )
    batch_size: int = 32  # over all processes
    bucket: int | None = None  # batches whose items are sorted by length among themselves
    workers: int = 0  # processes that make batches ahead; 0: the training process makes them
    lr: float = 1e-3  # at the top of the schedule
    warmup: float = 0.05  # share of the steps in which the rate rises
    schedule: Schedule = "cosine"  # after the warm-up; "linear" falls to a fiftieth, "noam" with the root of the step
    weight_decay: float = 0.1  # of matrices only
    betas: tuple[float, float] = (0.9, 0.95)  # of AdamW's two running means, for each step
    clip: float | None = 1.0  # largest gradient norm
    eval_every: int = 100  # steps; the last step is always evaluated
    patience: int | None = None  # evaluations without a new best after which the run stops
    checkpoint_every: int = 500  # steps; a new best and the last step are always kept
    average: int | None = None  # newest checkpoints whose mean is the result, in place of the best
    disagreement: Kind | None = None  # of the heads: a term of the loss (regard.lab.train.terms)
    disagreement_weight: float = 1.0  # of that term
    commitment: float | None = None  # weight of routing's commitment loss; 1e-4 in the paper
    batch_l2: float | None = None  # weight of DIN's mini-batch-aware L2
    keep: int = 2  # newest checkpoints that stay, beside the best
    log_every: int = 10  # steps between log entries and checks for finite losses
    log_dir: str | None = "logs"  # TensorBoard files, inside the run's folder; None writes none
    precision: Literal["no", "bf16"] = "no"
    seed: int = 0  # order of batches, dropout; not the model's initial weights

    def __post_init__(self) -> None:
        if (self.steps is None) == (self.tokens is None):
            raise OptionError(
                f"give one of steps and tokens, got steps={self.steps}, tokens={self.tokens}"
            )
        for name in _COUNTS:
            value = getattr(self, name)
            if value is None and name in _OPTIONAL:
                continue
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise OptionError(f"{name} must be a whole number of at least 1, got {value!r}")
        if not isinstance(self.workers, int) or isinstance(self.workers, bool) or self.workers < 0:
            raise OptionError(f"workers must be a whole number of at least 0, got {self.workers!r}")
        self._require("lr", self.lr, self.lr > 0, "a positive number")
        self._require(
            "weight_decay", self.weight_decay, self.weight_decay >= 0, "a number of at least 0"
        )
        self._require(
            "warmup", self.warmup, 0 <= self.warmup < 1, "a share of the steps, from 0 to below 1"
        )
        if self.clip is not None:
            self._require(
                "clip", self.clip, self.clip > 0, "a positive number, or None for no limit"
            )
        for name in ("disagreement_weight", "commitment", "batch_l2"):
            value = getattr(self, name)
            if value is not None:
                self._require(name, value, value >= 0, "a number of at least 0")
        self._require_one("schedule", self.schedule, get_args(Schedule))
        self._require_one("disagreement", self.disagreement, (None, *get_args(Kind)))
        if self.average is not None and self.average > self.keep:
            raise OptionError(
                f"average ({self.average}) must be at most keep ({self.keep}), the checkpoints that stay"
            )
        if len(self.betas) != 2:
            raise OptionError(f"betas must be two numbers, got {self.betas!r}")
        for beta in self.betas:
            self._require("betas", beta, 0 <= beta < 1, "two numbers from 0 to below 1")
        if self.precision not in ("no", "bf16"):
            raise OptionError(f"precision must be 'no' or 'bf16', got {self.precision!r}")
        if self.log_dir is not None and (
            Path(self.log_dir).is_absolute() or ".." in Path(self.log_dir).parts
        ):
            raise OptionError(
                f"log_dir ({self.log_dir!r}) must be a folder inside the run's own, or None"
            )
        check_seed("train", self.seed)

    def _require_one(self, name: str, value: object, known: tuple) -> None:
        if value not in known:
            raise OptionError(f"{name} must be one of {known}, got {value!r}")

    def _require(self, name: str, value: float, holds: bool, wanted: str) -> None:
        if not holds or not math.isfinite(value):
            raise OptionError(f"{name} must be {wanted}, got {value!r}")
