"""The run that `regard train correlated_tasks` starts."""

from regard.lab.recipes.run import Run
from regard.lab.tasks import CorrelatedTasks
from regard.lab.train import TrainConfig
from regard.models import MMoEConfig


def correlated_tasks() -> Run:
    """MMoE on the two related tasks of its paper, whose weights have the cosine 0.5.

    R2 on 4,000 test rows: MMoE 0.988, linear regression 0.698, a margin of 0.29. Under the same budget
    the attention-query gate reached 0.983 and shared-bottom of 128 units 0.973.
    """
    task = CorrelatedTasks()
    return Run(
        task=task,
        model=MMoEConfig(input_dim=task.dim, num_tasks=2),
        train=TrainConfig(steps=2000, batch_size=128, lr=5e-3, weight_decay=0.0, eval_every=250),
    )
