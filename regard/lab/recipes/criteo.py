"""The run that `regard train criteo_autoint` starts, on your own copy of the data."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import Criteo
from regard.lab.train import TrainConfig
from regard.models import AutoIntConfig


def criteo_autoint() -> Run:
    """AutoInt in its paper's sizes on Criteo's display advertising data: is it clicked?

    On your own copy, which `--task.path` names; `--task.max-rows` says how much of it. No figures are stated.
    """
    return Run(
        task=Criteo(),
        model=AutoIntConfig(),
        train=TrainConfig(steps=2000, batch_size=1024, lr=1e-3, weight_decay=0.0, eval_every=200),
    )
