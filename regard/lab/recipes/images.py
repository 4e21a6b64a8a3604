"""Runs on pictures, as pixels or patches."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import Digits
from regard.lab.tasks.images import MNIST, CIFAR10Grey, FashionMNIST, LRAPathfinder, Pathfinder
from regard.lab.train import TrainConfig
from regard.models import (
    ClassifierConfig,
    PatchClassifierConfig,
)


def digits() -> Run:
    """8x8 images of digits, read pixel by pixel."""
    task = Digits()
    return Run(
        task=task,
        model=ClassifierConfig(
            **task.facts,
            max_len=task.max_len,
            dim=64,
            num_heads=4,
            num_layers=2,
            position="learned",
        ),
        train=TrainConfig(steps=1000, batch_size=32, lr=1e-3, eval_every=100, patience=5),
    )


def fashion_mnist() -> Run:
    """Pictures of clothes, read as 49 patches of 4 x 4 pixels.

    Measured: accuracy 0.843, most frequent class 0.100; 70 seconds of one core. Read pixel by pixel a picture is 16 times as
    long: a layer of `linear` reached 0.68 (validation) in 75 seconds.
    """
    task = FashionMNIST(valid_size=1000)
    return Run(
        task=task,
        model=PatchClassifierConfig(
            **task.facts, image_size=(28, 28), patch_size=4, dim=64, num_heads=4, num_layers=2
        ),
        train=TrainConfig(steps=1000, batch_size=64, lr=2e-3, eval_every=500),
    )


def pathfinder() -> Run:
    """Are two discs on one dashed path? Easy pictures of 32 x 32: five convolutions, attention over 8 x 8 places, their maximum.

    Measured: accuracy 0.898, most frequent class 0.518; 77 seconds of one core. Five convolutions and a maximum reach as
    much without attention. Without convolutions, heads that look one or two steps along the rows and columns of 16 x 16
    patches learn it too, more slowly: 0.76 in five minutes (docs/log.md).
    """
    task = Pathfinder(contour_length=3)
    return Run(
        task=task,
        model=PatchClassifierConfig(
            **task.facts,
            image_size=(32, 32),
            patch_size=4,
            stem=((16, 1), (32, 2), (48, 2), (48, 1), (48, 1)),
            dim=48,
            num_heads=4,
            num_layers=1,
            hidden_dim=96,
            summary="max",
        ),
        train=TrainConfig(steps=1000, batch_size=64, lr=3e-3, eval_every=200),
    )


def mnist() -> Run:
    """MNIST's digits, pixel by pixel."""
    task = MNIST()
    return Run(
        task=task,
        model=ClassifierConfig(
            **task.facts, max_len=task.max_len, dim=64, num_heads=4, num_layers=2
        ),
        train=TrainConfig(steps=2000, batch_size=32, lr=1e-3, eval_every=200),
    )


def cifar10_grey() -> Run:
    """CIFAR-10 in grey, the Long Range Arena's Image."""
    task = CIFAR10Grey()
    return Run(
        task=task,
        model=ClassifierConfig(
            **task.facts,
            max_len=task.max_len,
            dim=128,
            num_heads=8,
            num_layers=1,
            hidden_dim=128,
            dropout=0.3,
        ),
        train=TrainConfig(steps=35000, batch_size=256, lr=5e-4, weight_decay=0.0, eval_every=1000),
    )


def lra_pathfinder() -> Run:
    """The Long Range Arena's Pathfinder of 32 x 32 pixels."""
    task = LRAPathfinder()
    return Run(
        task=task,
        model=ClassifierConfig(
            **task.facts,
            max_len=task.max_len,
            dim=32,
            num_heads=4,
            num_layers=4,
            hidden_dim=32,
            dropout=0.2,
        ),
        train=TrainConfig(steps=62500, batch_size=512, lr=1e-3, weight_decay=0.0, eval_every=1000),
    )
