"""The runs of the published stacks: each at its size for small machines, on a task that needs no download."""

from regard import models
from regard.lab.recipes.run import Run
from regard.lab.tasks import Digits, Duplication, ListOps, Recall, StdlibBytes
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.language_models import NextToken
from regard.lab.train import TrainConfig
from regard.models import Published, PublishedImages


def reformer() -> Run:
    """Reformer, reversible and hashed, repeats a sequence of 31 tokens."""
    return _continues(models.reformer, Duplication(), steps=400)


def longformer() -> Run:
    """Longformer, its first token global, reads nested list expressions."""
    return _reads(models.longformer, ListOps())


def bigbird() -> Run:
    """BigBird reads nested list expressions."""
    return _reads(models.bigbird, ListOps())


def performer() -> Run:
    """Performer predicts the next byte of Python's own source."""
    return _continues(models.performer, StdlibBytes())


def linformer() -> Run:
    """Linformer reads nested list expressions."""
    return _reads(models.linformer, ListOps())


def fnet() -> Run:
    """FNet reads nested list expressions."""
    return _reads(models.fnet, ListOps())


def gmlp() -> Run:
    """gMLP predicts the next byte of Python's own source."""
    return _continues(models.gmlp, StdlibBytes())


def mlp_mixer() -> Run:
    """MLP-Mixer reads 8x8 images of digits as patches of 2x2 pixels."""
    return _sees(models.mlp_mixer)


def gmlp_image() -> Run:
    """gMLP reads 8x8 images of digits as patches of 2x2 pixels."""
    return _sees(models.gmlp_image)


def synthesizer() -> Run:
    """Synthesizer, table and dot product blended, predicts the next byte of Python's own source."""
    return _continues(models.synthesizer, StdlibBytes())


def flash() -> Run:
    """FLASH predicts the next byte of Python's own source."""
    return _continues(models.flash, StdlibBytes())


def flash_quad() -> Run:
    """FLASH-Quad recalls the values of keys."""
    return _continues(models.flash_quad, Recall())


def _reads(stack: Published, task: Classify) -> Run:
    return Run(
        task=task,
        model=stack("small", head="classifier", **task.facts, max_len=task.max_len),
        train=TrainConfig(steps=1000, batch_size=32, lr=1e-3, eval_every=100, patience=5),
    )


def _sees(stack: PublishedImages) -> Run:
    task = Digits()
    return Run(
        task=task,
        model=stack(
            "small",
            image_size=(8, 8),
            channels=1,
            num_classes=task.num_classes,
            vocab_size=task.vocab_size,
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=1e-3, eval_every=100, patience=5),
    )


def _continues(stack: Published, task: NextToken, *, steps: int = 1000) -> Run:
    return Run(
        task=task,
        model=stack(
            "small", head="language_model", vocab_size=task.vocab_size, max_len=task.max_len
        ),
        train=TrainConfig(steps=steps, batch_size=16, lr=2e-3, eval_every=100, patience=5),
    )
