"""The run that `regard train newsgroups_masked` starts."""

from regard.models import MaskedLanguageModelConfig
from regard.recipes.run import Run
from regard.tasks.newsgroups_masked import NewsgroupsMasked
from regard.train import TrainConfig


def newsgroups_masked() -> Run:
    """Hidden bytes of newsgroup posts: what `newsgroups_transfer` starts from."""
    task = NewsgroupsMasked(length=128)
    return Run(
        task=task,
        model=MaskedLanguageModelConfig(
            vocab_size=task.vocab_size,
            max_len=256,
            dim=64,
            num_heads=4,
            num_layers=1,
        ),
        train=TrainConfig(steps=500, batch_size=16, lr=4e-3, eval_every=250),
    )
