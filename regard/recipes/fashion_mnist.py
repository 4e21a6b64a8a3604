"""The run that `regard train fashion_mnist` starts."""

from regard.models import ClassifierConfig
from regard.recipes.run import Run
from regard.tasks.fashion_mnist import FashionMNIST
from regard.train import TrainConfig


def fashion_mnist() -> Run:
    """Pictures of clothes, 784 grey values read one by one, rows and columns known."""
    task = FashionMNIST(valid_size=1000)
    return Run(
        task=task,
        model=ClassifierConfig(
            vocab_size=task.vocab_size,
            num_classes=task.num_classes,
            max_len=task.max_len,
            dim=32,
            num_heads=2,
            num_layers=1,
            mixer="linear",
            position="axial",
            position_options={"shape": (28, 28)},
        ),
        train=TrainConfig(steps=200, batch_size=16, lr=5e-3, eval_every=100),
    )
