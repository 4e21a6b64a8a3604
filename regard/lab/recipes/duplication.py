"""The run that `regard train duplication` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import Duplication
from regard.lab.train import TrainConfig
from regard.models import LanguageModelConfig


def duplication() -> Run:
    """A sequence of 31 tokens is read, and said again.

    Measured: accuracy 1.000, the most frequent token 0.034; 45 seconds of one core.
    """
    task = Duplication()
    return Run(
        task=task,
        model=LanguageModelConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=64, num_heads=2, num_layers=2
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=2e-3, eval_every=100, patience=3),
    )
