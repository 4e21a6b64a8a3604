"""The run that `regard train listops` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import ListOps
from regard.lab.train import TrainConfig
from regard.models import ClassifierConfig


def listops() -> Run:
    """Nested list expressions of 50 to 200 tokens, classified by their value."""
    task = ListOps()
    return Run(
        task=task,
        model=ClassifierConfig(
            vocab_size=task.vocab_size,
            num_classes=task.num_classes,
            max_len=task.max_len,
            dim=64,
            num_heads=4,
            num_layers=2,
        ),
        train=TrainConfig(steps=2000, batch_size=32, lr=1e-3, eval_every=200, patience=5),
    )
