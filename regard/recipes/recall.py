"""The run that `regard train recall` starts."""

from regard.models import LanguageModelConfig
from regard.recipes.run import Run
from regard.tasks import Recall
from regard.train import TrainConfig


def recall() -> Run:
    """Which value stood behind a key? Eight pairs, then the keys again, in 64 tokens."""
    task = Recall()
    return Run(
        task=task,
        model=LanguageModelConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=64, num_heads=2, num_layers=2
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=2e-3, eval_every=100, patience=3),
    )
