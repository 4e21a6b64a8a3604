"""The run that `regard train stdlib_bytes` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import StdlibBytes
from regard.lab.train import TrainConfig
from regard.models import LanguageModelConfig


def stdlib_bytes() -> Run:
    """The next byte of Python's own source, 256 bytes at a time.

    Measured: 2.20 bits a byte, byte frequencies 4.56; 191 seconds of one core.
    """
    task = StdlibBytes()
    return Run(
        task=task,
        model=LanguageModelConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=2,
        ),
        train=TrainConfig(steps=2000, batch_size=8, lr=2e-3, eval_every=500),
    )
