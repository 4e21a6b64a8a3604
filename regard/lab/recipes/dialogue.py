"""The run that `regard train dialogue` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import Dialogue
from regard.lab.train import TrainConfig
from regard.models import TransformerConfig


def dialogue() -> Run:
    """A speech of Shakespeare's -> the answer to it.

    Measured: 2.48 bits per byte; 2.73 under the frequencies of the answers' tokens. A minute on one core.
    """
    task = Dialogue()
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=1,
        ),
        train=TrainConfig(steps=300, batch_size=16, lr=2e-3, eval_every=100),
    )
