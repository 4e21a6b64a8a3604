"""Runs from one text to another: translation, summaries, dialogue."""

import dataclasses

from regard.lab.recipes.run import Run
from regard.lab.tasks import (
    BibleEs,
    DebianSummary,
    Dialogue,
    TextFiles,
    TextPairs,
    TranslateDe,
    TranslateFr,
    TranslateIt,
)
from regard.lab.tasks.greek_english import GreekEnglish
from regard.lab.tasks.pairs import Docstrings
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
            vocab_size=task.vocab_size, max_len=task.max_len, dim=128, num_heads=4, num_layers=2
        ),
        train=TrainConfig(steps=3000, batch_size=32, lr=2e-3, eval_every=500, bucket=8),
    )


def _small(task: TextPairs, *, source_len: int, target_len: int) -> Run:
    """Short texts in a small vocabulary."""
    task = dataclasses.replace(task, vocab_size=2048, source_len=source_len, target_len=target_len)
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=128, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=2e-3, eval_every=500, bucket=8),
    )


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


def debian_summary() -> Run:
    """The first 64 tokens of a package's long description -> its short one, by the bits that a byte of the given one costs.

    Measured: 1.91 bits, frequencies of the summaries' tokens 2.85; 135 seconds of one core. Its own summaries are not better than
    the description's first words yet: ROUGE-L 14.7 of 23.0. `--task.metric rouge_l` gives that score.
    """
    task = DebianSummary(metric="bits_per_byte", vocab_size=2048, source_len=64, valid_size=500)
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=128, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=2e-3, eval_every=500, bucket=8),
    )


def dialogue() -> Run:
    """A speech of Shakespeare's -> the answer to it.

    Measured: 2.48 bits per byte; 2.73 under the frequencies of the answers' tokens. A minute on one core.
    """
    task = Dialogue()
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=128, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=300, batch_size=16, lr=2e-3, eval_every=100),
    )
