"""Training: `start(run_for("digits"), folder)` trains a task's model within a budget, and survives being killed."""

from regard.lab.train.config import TrainConfig
from regard.lab.train.defaults import run_for
from regard.lab.train.loop import DivergedError, FitResult, fit
from regard.lab.train.run import Run, load, start, train

__all__ = [
    "DivergedError",
    "FitResult",
    "Run",
    "TrainConfig",
    "fit",
    "load",
    "run_for",
    "start",
    "train",
]
