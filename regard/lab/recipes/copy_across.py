"""The run that `regard train copy_across` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import CopyAcross
from regard.lab.train import TrainConfig
from regard.models import TransformerXLConfig


def copy_across() -> Run:
    """Symbols to repeat three segments later; with `--model.mem-len 1` it cannot be learned."""
    task = CopyAcross()
    return Run(
        task=task,
        model=TransformerXLConfig(
            vocab_size=task.vocab_size,
            dim=32,
            num_heads=4,
            num_layers=2,
            hidden_dim=64,
            segment_len=8,
            mem_len=32,
            norm_first=True,
        ),
        train=TrainConfig(steps=300, batch_size=32, lr=1e-2, eval_every=50),
    )
