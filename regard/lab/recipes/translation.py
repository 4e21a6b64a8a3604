"""The runs that `regard train translate_de`, `translate_fr`, `translate_it`, `bible_es` and `text_files` start."""

import dataclasses

from regard.lab.recipes.run import Run
from regard.lab.tasks import BibleEs, TextFiles, TextPairs, TranslateDe, TranslateFr, TranslateIt
from regard.lab.train import TrainConfig
from regard.models import TransformerConfig


def translate_de() -> Run:
    """English -> German: descriptions of packages, and interface texts, of up to 32 tokens.

    Measured: BLEU 9.3, the source copied 4.6; 113 seconds of one core.
    """
    return _small(TranslateDe(), source_len=32, target_len=48)


def translate_fr() -> Run:
    """English -> French: descriptions of packages, and interface texts, of up to 32 tokens.

    Measured: BLEU 12.4, the source copied 4.4; 122 seconds of one core.
    """
    return _small(TranslateFr(), source_len=32, target_len=48)


def translate_it() -> Run:
    """English -> Italian: descriptions of packages, of up to 32 tokens.

    Measured: BLEU 28.1, the source copied 8.0; 121 seconds of one core.
    """
    return _small(TranslateIt(), source_len=32, target_len=48)


def bible_es() -> Run:
    """English -> Spanish, verse by verse, of up to 48 tokens.

    Measured: BLEU 8.5, the source copied 0.3; 158 seconds of one core.
    """
    return _small(BibleEs(), source_len=48, target_len=64)


def text_files() -> Run:
    """From your own file of sentences to another, line by line: `--task.source a.en --task.target a.de`."""
    task = TextFiles()
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=2,
        ),
        train=TrainConfig(steps=3000, batch_size=32, lr=2e-3, eval_every=500, bucket=8),
    )


def _small(task: TextPairs, *, source_len: int, target_len: int) -> Run:
    """Short texts in a small vocabulary."""
    task = dataclasses.replace(task, vocab_size=2048, source_len=source_len, target_len=target_len)
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
