"""The run that `regard train pathfinder` starts."""

from regard.models import ClassifierConfig
from regard.recipes.run import Run
from regard.tasks.pathfinder import Pathfinder
from regard.train import TrainConfig


def pathfinder() -> Run:
    """Are two discs on one dashed path? Easy pictures of 32 x 32, read pixel by pixel, rows and columns known.

    The smallest run of its kind, and chance: mixers without a bias to neighbouring pixels learn nothing in minutes
    (docs/log.md). The task is not to blame: five small convolutions reach 0.91 on the same pictures in half a minute.
    """
    task = Pathfinder(contour_length=3)
    return Run(
        task=task,
        model=ClassifierConfig(
            vocab_size=task.vocab_size,
            num_classes=task.num_classes,
            max_len=task.max_len,
            dim=32,
            num_heads=2,
            num_layers=2,
            mixer="linear",
            position="axial",
            position_options={"shape": (32, 32)},
        ),
        train=TrainConfig(steps=300, batch_size=16, lr=2e-3, eval_every=150),
    )
