"""Training: `fit` runs a model on a task within a budget, and survives being killed."""

from regard.train.config import TrainConfig
from regard.train.loop import DivergedError, FitResult, fit

__all__ = ["DivergedError", "FitResult", "TrainConfig", "fit"]
