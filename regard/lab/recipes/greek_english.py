"""The run that `regard train greek_english` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks.greek_english import GreekEnglish
from regard.lab.train import TrainConfig
from regard.models import TransformerConfig


def greek_english() -> Run:
    """Greek verses -> English ones; the score is how often attention and people disagree on which words belong together.

    One decoder block has to look at the source of the word that it is about to say, so the weights are read at that step;
    an encoder that sees one word to each side leaves every word at its place.
    """
    task = GreekEnglish(reads="predicted")
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=1,
            mixer="local",
            mixer_options={"window_size": 1},
        ),
        train=TrainConfig(steps=1200, batch_size=32, lr=2e-3, eval_every=200),
    )
