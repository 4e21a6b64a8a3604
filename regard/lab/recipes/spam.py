"""The run that `regard train spam` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks.spam import Spam
from regard.lab.train import TrainConfig
from regard.models import ClassifierConfig


def spam() -> Run:
    """Spam or ham by the first 256 bytes of an e-mail's body.

    Measured: macro-F1 0.913, always one class 0.333; 25 seconds of one core.
    """
    task = Spam(length=256)
    return Run(
        task=task,
        model=ClassifierConfig(
            vocab_size=task.vocab_size,
            num_classes=task.num_classes,
            max_len=task.max_len,
            dim=64,
            num_heads=4,
            num_layers=1,
        ),
        train=TrainConfig(steps=200, batch_size=32, lr=3e-3, eval_every=50, bucket=8),
    )
