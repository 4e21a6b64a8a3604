"""Runs on labelled texts and on pairs of texts: classifiers and matchers."""

import dataclasses
from pathlib import Path

from regard.lab.recipes.run import Run
from regard.lab.tasks import BibleChapters
from regard.lab.tasks.texts import (
    DebianSections,
    IMDb,
    LabelledTexts,
    LRARetrieval,
    Newsgroups,
    Spam,
)
from regard.lab.train import TrainConfig
from regard.models import (
    ClassifierConfig,
    DualEncoderConfig,
    HANConfig,
    XLNetMatcherConfig,
)


def spam() -> Run:
    """Spam or ham by the first 256 bytes of an e-mail's body.

    Measured: macro-F1 0.913, always one class 0.333; 25 seconds of one core.
    """
    task = Spam(length=256)
    return Run(
        task=task,
        model=ClassifierConfig(
            **task.facts, max_len=task.max_len, dim=64, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=200, batch_size=32, lr=3e-3, eval_every=50, bucket=8),
    )


def spam_transfer() -> Run:
    """`spam`, from the weights of `spam_masked` in the folder that `regard train` gives it.

    Measured with seeds 0 and 1: macro-F1 0.937 and 0.937; from scratch 0.913 and 0.921; always one class 0.333.
    """
    return dataclasses.replace(spam(), start_from=Path("runs/train/spam_masked"))


def newsgroups() -> Run:
    """Twenty newsgroups by the first 256 bytes of a post.

    Attention over seven bytes at a time; the summary is the maximum of each feature over the post.
    Measured: accuracy 0.364, most frequent class 0.052; 142 seconds of one core.
    """
    task = Newsgroups(length=256)
    return Run(
        task=task,
        model=ClassifierConfig(
            **task.facts,
            max_len=task.max_len,
            dim=96,
            num_heads=4,
            num_layers=1,
            mixer="local",
            mixer_options={"window_size": 3},
            summary="max",
        ),
        train=TrainConfig(steps=800, batch_size=32, lr=3e-3, eval_every=200, bucket=8),
    )


def newsgroups_transfer() -> Run:
    """`newsgroups`, from the weights of `newsgroups_masked` in the folder that `regard train` gives it.

    Measured: accuracy 0.438, most frequent class 0.052; 129 seconds of one core, and 66 more for the hidden bytes. From
    scratch, with as many steps of its own, 0.364.
    """
    return dataclasses.replace(newsgroups(), start_from=Path("runs/train/newsgroups_masked"))


def debian_sections() -> Run:
    """Packages by their description: sentences of words, a hierarchical attention network.

    Measured: accuracy 0.628 over 27 sections, always the most frequent 0.115; 68 seconds of one core, reading included.
    """
    task = DebianSections()
    return Run(
        task=task,
        model=HANConfig(**task.facts, dim=64, hidden_dim=32, attention_dim=64),
        train=TrainConfig(steps=400, batch_size=32, lr=3e-3, eval_every=200),
    )


def bible_chapters() -> Run:
    """Is it the same chapter in older and in plainer English? The first 256 bytes of each."""
    task = BibleChapters(length=256)
    return Run(
        task=task,
        model=DualEncoderConfig(
            vocab_size=task.vocab_size, max_len=task.max_len, dim=64, num_heads=4, num_layers=1
        ),
        train=TrainConfig(steps=300, batch_size=16, lr=2e-3, eval_every=100),
    )


def xlnet_matcher() -> Run:
    """XLNet reads two chapters as one: are they the same, in older and in plainer English? The first 128 bytes of each."""
    task = BibleChapters(length=128)
    return Run(
        task=task,
        model=XLNetMatcherConfig(**task.facts, dim=64, num_heads=4, num_layers=2, hidden_dim=128),
        train=TrainConfig(steps=300, batch_size=16, lr=1e-3, eval_every=100),
    )


def imdb() -> Run:
    """IMDb reviews, the Long Range Arena's Text, at 4,000 bytes."""
    task = IMDb(length=4000)
    return Run(
        task=task,
        model=ClassifierConfig(
            **task.facts, max_len=task.max_len, dim=256, num_heads=4, num_layers=4, hidden_dim=1024
        ),
        train=TrainConfig(
            steps=20000, batch_size=32, lr=5e-4, warmup=0.2, eval_every=1000, bucket=16
        ),
    )


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


def labelled_texts() -> Run:
    """Your own texts by their first 512 bytes: `--task.path reviews.csv`, and `--model.num-classes` where there are not two."""
    task = LabelledTexts()
    return Run(
        task=task,
        model=ClassifierConfig(
            **task.facts, num_classes=2, max_len=task.max_len, dim=64, num_heads=4, num_layers=2
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=2e-3, eval_every=100, bucket=8),
    )
