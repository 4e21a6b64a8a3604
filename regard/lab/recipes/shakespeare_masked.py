"""The run that `regard train shakespeare_masked` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks.shakespeare_masked import ShakespeareMasked
from regard.lab.train import TrainConfig
from regard.models import MaskedLanguageModelConfig


def shakespeare_masked() -> Run:
    """Hidden bytes of Shakespeare, 128 bytes at a time; whole works are held out."""
    task = ShakespeareMasked(length=128)
    return Run(
        task=task,
        model=MaskedLanguageModelConfig(
            vocab_size=task.vocab_size,
            max_len=256,
            dim=64,
            num_heads=4,
            num_layers=1,
        ),
        train=TrainConfig(steps=400, batch_size=16, lr=4e-3, eval_every=200),
    )
