"""Runs on published sets that the user has: `regard train imdb --task.path ~/aclImdb`.

Sizes, batches and steps of the Long Range Arena are those of its public Transformer configurations (arXiv 2011.04006), for
an accelerator, but for the width of queries and keys, which is the model's; where its code counts epochs, steps are
epochs times training items over batch. Rates are AdamW's with a cosine here, not its own schedule, pooling is the mean, and
nothing of this was measured here.
"""

from typing import Any

from regard.lab.recipes.run import Run
from regard.lab.tasks.classify import Classify
from regard.lab.tasks.own_copies import (
    MNIST,
    CIFAR10Grey,
    Enwik8,
    IMDb,
    LabelledTexts,
    LRAListOps,
    LRAPathfinder,
    LRARetrieval,
    Text8,
    Wikipedia,
)
from regard.lab.train import TrainConfig
from regard.models import ClassifierConfig, DualEncoderConfig, LanguageModelConfig


def lra_listops() -> Run:
    """The Long Range Arena's ListOps."""
    sizes = {"dim": 512, "num_heads": 8, "num_layers": 4, "hidden_dim": 1024}
    train = TrainConfig(steps=5000, batch_size=32, lr=1e-3, warmup=0.2, eval_every=500, bucket=16)
    return _classify(LRAListOps(), sizes, train)


def imdb() -> Run:
    """IMDb reviews, the Long Range Arena's Text, at 4,000 bytes."""
    sizes = {"dim": 256, "num_heads": 4, "num_layers": 4, "hidden_dim": 1024}
    train = TrainConfig(steps=20000, batch_size=32, lr=5e-4, warmup=0.2, eval_every=1000, bucket=16)
    return _classify(IMDb(length=4000), sizes, train)


def lra_retrieval() -> Run:
    """The Long Range Arena's Retrieval, at 4,000 bytes of each paper."""
    task = LRARetrieval(length=4000)
    return Run(
        task=task,
        model=DualEncoderConfig(
            vocab_size=task.vocab_size,
            max_len=task.max_len,
            dim=128,
            num_heads=4,
            num_layers=4,
            hidden_dim=512,
        ),
        train=TrainConfig(steps=5000, batch_size=32, lr=5e-4, warmup=0.2, eval_every=500),
    )


def mnist() -> Run:
    """MNIST's digits, pixel by pixel."""
    sizes = {"dim": 64, "num_heads": 4, "num_layers": 2}
    train = TrainConfig(steps=2000, batch_size=32, lr=1e-3, eval_every=200)
    return _classify(MNIST(), sizes, train)


def labelled_texts() -> Run:
    """Your own texts by their first 512 bytes: `--task.path DIR --task.num-classes 2 --model.num-classes 2`."""
    sizes = {"dim": 64, "num_heads": 4, "num_layers": 2}
    train = TrainConfig(steps=1000, batch_size=32, lr=2e-3, eval_every=100, bucket=8)
    return _classify(LabelledTexts(), sizes, train)


def cifar10_grey() -> Run:
    """CIFAR-10 in grey, the Long Range Arena's Image."""
    sizes = {"dim": 128, "num_heads": 8, "num_layers": 1, "hidden_dim": 128, "dropout": 0.3}
    train = TrainConfig(steps=35000, batch_size=256, lr=5e-4, weight_decay=0.0, eval_every=1000)
    return _classify(CIFAR10Grey(), sizes, train)


def lra_pathfinder() -> Run:
    """The Long Range Arena's Pathfinder of 32 x 32 pixels."""
    sizes = {"dim": 32, "num_heads": 4, "num_layers": 4, "hidden_dim": 32, "dropout": 0.2}
    train = TrainConfig(steps=62500, batch_size=512, lr=1e-3, weight_decay=0.0, eval_every=1000)
    return _classify(LRAPathfinder(), sizes, train)


def enwik8() -> Run:
    """Wikipedia's bytes, 512 at a time."""
    return _continue(Enwik8())


def text8() -> Run:
    """Wikipedia's letters, 512 at a time."""
    return _continue(Text8())


def _continue(task: Wikipedia) -> Run:
    return Run(
        task=task,
        model=LanguageModelConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=512, num_heads=8, num_layers=6
        ),
        train=TrainConfig(steps=20000, batch_size=32, lr=5e-4, eval_every=1000),
    )


def _classify(task: Classify, sizes: dict[str, Any], train: TrainConfig) -> Run:
    model = ClassifierConfig(
        vocab_size=task.vocab_size, num_classes=task.num_classes, max_len=task.max_len, **sizes
    )
    return Run(task=task, model=model, train=train)
