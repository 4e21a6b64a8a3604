"""The run that `regard train docstrings` starts."""

from regard.models import TransformerConfig
from regard.recipes.run import Run
from regard.tasks.docstrings import Docstrings
from regard.train import TrainConfig


def docstrings() -> Run:
    """A function's source, read by an encoder -> its docstring's first paragraph."""
    task = Docstrings()
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=2,
            dropout=0.1,
        ),
        train=TrainConfig(steps=2000, batch_size=32, lr=2e-3, eval_every=250),
    )
