"""The run that `regard train debian_summary` starts."""

from regard.models import TransformerConfig
from regard.recipes.run import Run
from regard.tasks import DebianSummary
from regard.train import TrainConfig


def debian_summary() -> Run:
    """The long description of a package -> its short one."""
    task = DebianSummary(metric="bits_per_byte", vocab_size=2048, source_len=64, valid_size=500)
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=1,
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=2e-3, eval_every=500, bucket=8),
    )
