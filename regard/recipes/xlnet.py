"""The run that `regard train xlnet` starts."""

from regard.models import XLNetConfig
from regard.recipes.run import Run
from regard.tasks import StdlibPermuted
from regard.train import TrainConfig


def xlnet() -> Run:
    """Bytes of Python's own source in drawn orders: one in six is asked."""
    task = StdlibPermuted(valid_size=128, test_size=256)
    return Run(
        task=task,
        model=XLNetConfig(
            vocab_size=task.vocab_size,
            dim=128,
            num_heads=4,
            num_layers=2,
            hidden_dim=256,
            asked=task.length // task.k,
        ),
        train=TrainConfig(steps=1500, batch_size=8, lr=1e-3, eval_every=150, patience=5),
    )
