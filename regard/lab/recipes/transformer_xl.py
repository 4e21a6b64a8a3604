"""The run that `regard train transformer_xl` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import StdlibBytes
from regard.lab.train import TrainConfig
from regard.models import TransformerXLConfig


def transformer_xl() -> Run:
    """The next byte of Python's own source, 256 bytes in segments of 64, each with a memory of 128."""
    task = StdlibBytes()
    return Run(
        task=task,
        model=TransformerXLConfig(
            vocab_size=task.vocab_size,
            dim=128,
            num_heads=4,
            num_layers=2,
            hidden_dim=256,
            segment_len=64,
            mem_len=128,
            norm_first=True,
        ),
        train=TrainConfig(steps=1500, batch_size=8, lr=2e-3, eval_every=150, patience=5),
    )
