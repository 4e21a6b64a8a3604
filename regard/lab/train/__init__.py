"""Training: `fit` runs a model on a task within a budget, and survives being killed."""

from regard.lab.train.config import TrainConfig
from regard.lab.train.loop import DivergedError, FitResult, fit

__all__ = ["DivergedError", "FitResult", "TrainConfig", "fit"]
