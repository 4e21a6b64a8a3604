"""The run that `regard train manual_pages` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks.manual_pages import ManualPages
from regard.lab.train import TrainConfig
from regard.models import DualEncoderConfig


def manual_pages() -> Run:
    """Does one manual page name the other? The first 256 bytes of each.

    Measured: accuracy 0.551 on 1,368 pairs, chance 0.5; 33 seconds of one core. A start, not a solution.
    """
    task = ManualPages(length=256)
    return Run(
        task=task,
        model=DualEncoderConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=64, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=200, batch_size=16, lr=1e-3, eval_every=100),
    )
