"""The run that `regard train digits` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import Digits
from regard.lab.train import TrainConfig
from regard.models import ClassifierConfig


def digits() -> Run:
    """8x8 images of digits, read pixel by pixel."""
    task = Digits()
    return Run(
        task=task,
        model=ClassifierConfig(
            vocab_size=task.vocab_size,
            num_classes=task.num_classes,
            max_len=task.max_len,
            dim=64,
            num_heads=4,
            num_layers=2,
            position="learned",
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=1e-3, eval_every=100, patience=5),
    )
