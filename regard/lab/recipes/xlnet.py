"""The runs of XLNet: `regard train xlnet`, and of its fine-tuned forms, from new weights, xlnet_classifier and xlnet_matcher."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import BibleChapters, ListOps, StdlibPermuted
from regard.lab.train import TrainConfig
from regard.models import XLNetClassifierConfig, XLNetConfig, XLNetMatcherConfig


def xlnet() -> Run:
    """Bytes of Python's own source in drawn orders: one in six is asked."""
    task = StdlibPermuted(valid_size=128, test_size=256)
    return Run(
        task=task,
        model=XLNetConfig(
            vocab_size=task.vocab_size,
            dim=128,
            num_heads=4,
            num_layers=2,
            hidden_dim=256,
            asked=task.length // task.k,
        ),
        train=TrainConfig(steps=1500, batch_size=8, lr=1e-3, eval_every=150, patience=5),
    )


def xlnet_classifier() -> Run:
    """XLNet's classifier reads nested list expressions."""
    task = ListOps()
    return Run(
        task=task,
        model=XLNetClassifierConfig(
            vocab_size=task.vocab_size,
            num_classes=task.num_classes,
            dim=64,
            num_heads=4,
            num_layers=2,
            hidden_dim=128,
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=1e-3, eval_every=100, patience=5),
    )


def xlnet_matcher() -> Run:
    """XLNet reads two chapters as one: are they the same, in older and in plainer English? The first 128 bytes of each."""
    task = BibleChapters(length=128)
    return Run(
        task=task,
        model=XLNetMatcherConfig(
            vocab_size=task.vocab_size,
            num_classes=task.num_classes,
            dim=64,
            num_heads=4,
            num_layers=2,
            hidden_dim=128,
        ),
        train=TrainConfig(steps=300, batch_size=16, lr=1e-3, eval_every=100),
    )
