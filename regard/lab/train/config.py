"""The configuration of a training run."""

from typing import Annotated, Literal

from regard.core import WIDEST, Above0, Count, Declared, OptionError, Range, Rate
from regard.lab.tasks.task import DataSeed
from regard.nn.disagreement import Kind

Schedule = Literal["cosine", "linear"]
Weight = Annotated[float, Range(0, WIDEST, "a number of at least 0")]


class TrainConfig(Declared):
    """Budget, optimiser and bookkeeping of one run; exactly one of `steps` and `tokens` is the budget.

    Raises OptionError naming the field whose value cannot be used.
    """

    steps: int | None = None
    tokens: int | None = None  # the run ends with the step in which the items' tokens reach them
    batch_size: int = 32  # over all processes
    bucket: int | None = None  # batches whose items are sorted by length among themselves
    packing: bool = False  # texts of a batch share rows, as documents; for losses of each token
    workers: Count = 0  # processes that make batches ahead; 0: the training process makes them
    lr: Above0 = 1e-3  # at the top of the schedule
    warmup: Rate = 0.05  # share of the steps in which the rate rises
    schedule: Schedule = "cosine"  # after the warm-up; "linear" falls to a fiftieth
    weight_decay: Weight = 0.1  # of matrices only
    betas: tuple[Rate, Rate] = (0.9, 0.95)  # of AdamW's two running means, for each step
    clip: Above0 | None = 1.0  # largest gradient norm
    eval_every: int = 100  # steps; the last step is always evaluated
    patience: int | None = None  # evaluations without a new best after which the run stops
    checkpoint_every: int = 500  # steps; a new best and the last step are always kept
    disagreement: Kind | None = None  # of the heads: a term of the loss (regard.lab.train.terms)
    disagreement_weight: Weight = 1.0  # of that term
    commitment: Weight | None = None  # weight of routing's commitment loss; 1e-4 in the paper
    auxiliary: Weight | None = None  # weight of what mixers add, as the index of indexed
    batch_l2: Weight | None = None  # weight of DIN's mini-batch-aware L2
    keep: int = 2  # newest checkpoints that stay, beside the best
    log_every: int = 10  # steps between log entries and checks for finite losses
    log_dir: str | None = "logs"  # TensorBoard files, inside the run's folder; None writes none
    precision: Literal["no", "bf16"] = "no"
    seed: DataSeed = 0  # order of batches, dropout; not the model's initial weights

    def __post_init__(self):
        if (self.steps is None) == (self.tokens is None):
            raise OptionError(
                f"give one of steps and tokens, got steps={self.steps}, tokens={self.tokens}"
            )
