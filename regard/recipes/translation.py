"""The runs that `regard train translate_de`, `translate_fr`, `translate_it`, `bible_es` and `text_files` start."""

from regard.models import TransformerConfig
from regard.recipes.run import Run
from regard.tasks import BibleEs, TextFiles, TextPairs, TranslateDe, TranslateFr, TranslateIt
from regard.train import TrainConfig


def translate_de() -> Run:
    """English -> German: descriptions of packages, and interface texts."""
    return _run(TranslateDe())


def translate_fr() -> Run:
    """English -> French: descriptions of packages, and interface texts."""
    return _run(TranslateFr())


def translate_it() -> Run:
    """English -> Italian: descriptions of packages."""
    return _run(TranslateIt())


def bible_es() -> Run:
    """English -> Spanish, verse by verse."""
    return _run(BibleEs())


def text_files() -> Run:
    """From your own file of sentences to another, line by line: `--task.source a.en --task.target a.de`."""
    return _run(TextFiles())


def _run(task: TextPairs) -> Run:
    return Run(
        task=task,
        model=TransformerConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=2,
        ),
        train=TrainConfig(steps=3000, batch_size=32, lr=2e-3, eval_every=500),
    )
