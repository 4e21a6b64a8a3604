"""The run that `regard train newsgroups_transfer` starts."""

import dataclasses
from pathlib import Path

from regard.recipes.newsgroups import newsgroups
from regard.recipes.run import Run


def newsgroups_transfer() -> Run:
    """`newsgroups`, from the weights of `newsgroups_masked` in the folder that `regard train` gives it."""
    return dataclasses.replace(newsgroups(), start_from=Path("runs/train/newsgroups_masked"))
