"""The run that `regard train bible_chapters` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks.bible_chapters import BibleChapters
from regard.lab.train import TrainConfig
from regard.models import DualEncoderConfig


def bible_chapters() -> Run:
    """Is it the same chapter in older and in plainer English? The first 256 bytes of each."""
    task = BibleChapters(length=256)
    return Run(
        task=task,
        model=DualEncoderConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=64, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=300, batch_size=16, lr=2e-3, eval_every=100),
    )
