"""The run that `regard train spam_transfer` starts."""

import dataclasses
from pathlib import Path

from regard.recipes.run import Run
from regard.recipes.spam import spam


def spam_transfer() -> Run:
    """`spam`, from the weights of `spam_masked` in the folder that `regard train` gives it."""
    return dataclasses.replace(spam(), start_from=Path("runs/train/spam_masked"))
