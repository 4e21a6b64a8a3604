"""The run that `regard train docstrings` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks.docstrings import Docstrings
from regard.lab.train import TrainConfig
from regard.models import TransformerConfig


def docstrings() -> Run:
    """The first 64 tokens of a function -> its docstring's first paragraph.

    Measured: ROUGE-L 21.2; the best of first words, most frequent docstring and the function's name 18.7; 245 seconds of one core.
    """
    task = Docstrings(vocab_size=2048, source_len=64, target_len=32, valid_size=200)
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=1,
            dropout=0.1,
        ),
        train=TrainConfig(steps=1600, batch_size=32, lr=2e-3, eval_every=400, bucket=8),
    )
