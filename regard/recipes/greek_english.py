"""The run that `regard train greek_english` starts."""

from regard.models import TransformerConfig
from regard.recipes.run import Run
from regard.tasks.greek_english import GreekEnglish
from regard.train import TrainConfig


def greek_english() -> Run:
    """Greek verses -> English ones; the score is how often attention and people disagree on which words belong together."""
    task = GreekEnglish()
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=1,
        ),
        train=TrainConfig(steps=2000, batch_size=16, lr=4e-3, eval_every=200),
    )
