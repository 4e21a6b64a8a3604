"""The run that `regard train spam_masked` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks.spam_masked import SpamMasked
from regard.lab.train import TrainConfig
from regard.models import MaskedLanguageModelConfig


def spam_masked() -> Run:
    """Hidden bytes of e-mails: what `spam_transfer` starts from."""
    task = SpamMasked(length=256)
    return Run(
        task=task,
        model=MaskedLanguageModelConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=64,
            num_heads=4,
            num_layers=1,
        ),
        train=TrainConfig(steps=500, batch_size=16, lr=4e-3, eval_every=250),
    )
