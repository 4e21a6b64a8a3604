"""The run that `regard train spam_transfer` starts."""

import dataclasses
from pathlib import Path

from regard.lab.recipes.run import Run
from regard.lab.recipes.spam import spam


def spam_transfer() -> Run:
    """`spam`, from the weights of `spam_masked` in the folder that `regard train` gives it.

    Measured with seeds 0 and 1: macro-F1 0.937 and 0.937; from scratch 0.913 and 0.921; always one class 0.333.
    """
    return dataclasses.replace(spam(), start_from=Path("runs/train/spam_masked"))
