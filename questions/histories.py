"""What is each part of DIN worth where the history alone decides?

regard arena questions.histories:QUESTION --rows docs/findings/rows/histories.jsonl

About 10 core-minutes, estimated: 108 runs of 5 s, and a sixth more where rates are widened.
"""

from functools import partial
from typing import Any

from regard.lab import Claim, Column, Entry, Question, Shell, above, reaches
from regard.lab.tasks import PlantedHistories
from regard.lab.train import TrainConfig
from regard.models import DINConfig

ZHOU = "Zhou et al. 2018, arXiv 1706.06978"
SHELLS = (Shell(dim=16, num_heads=2), Shell(dim=24, num_heads=2))
TRAIN = TrainConfig(
    steps=1000, batch_size=128, weight_decay=0.0, eval_every=100, checkpoint_every=10_000, keep=1
)


def _din(pool: str, column: Column, activation: str = "dice", **options: Any) -> DINConfig:
    return DINConfig(
        history=("history",), pool=pool, pool_options=options, dim=column.shell.dim, activation=activation, hidden_dims=(64, 32)  # type: ignore[arg-type]
    )  # fmt: skip


# fmt: off
QUESTION = Question(
    name="histories",
    about="Must a history be weighed by the candidate, and by what, where its kinds alone decide?",
    kind="comparison",
    entries=(
        Entry(title="DIN", make=partial(_din, "target_query")),
        Entry(title="without the outer product", make=partial(_din, "target_query", interaction="none")),
        Entry(title="PReLU", make=partial(_din, "target_query", activation="prelu")),
        Entry(title="a softmax over the weights", make=partial(_din, "target_query", normalise=True)),
        Entry(title="mean of the history", make=partial(_din, "mean")),
        Entry(title="softmax attention", make=partial(_din, "cross", num_heads=2)),
        Entry(title="linear attention", make=partial(_din, "cross", mixer="linear", num_heads=2)),
    ),
    vary=(
        Column(name="planted", task=PlantedHistories(test_size=2000), train=TRAIN, shell=SHELLS[0]),
    ),
    shells=SHELLS,
    rates=(2e-3, 5e-3, 12.5e-3),
    baseline="DIN",
    factors=("size",),
    claims=(
        Claim(
            text="Attention to the history is better than its mean, where the history decides.", source=ZHOU, smallest=0.02,
            expected=(above("DIN", "mean of the history", by=0.05),),
        ),
        Claim(
            text="The outer product before the weights is what finds the interest.", source=f"{ZHOU}, and a survey article", smallest=0.01,
            expected=(above("DIN", "without the outer product", by=0.02),),
        ),
        Claim(text="Dice is better than PReLU.", source=f"{ZHOU}: AUC 0.7348 and 0.7337", smallest=0.01, expected=(above("DIN", "PReLU"),)),
        Claim(text="Planted histories need attention: it reaches 0.85.", source="ours, of planted_histories_din", smallest=0.02, expected=(reaches("DIN", 0.85),)),
    ),
    limits=(
        "A task in which the history decides everything, made for attention: it says what a part can do, not what it is worth to a shop.",
        "Sizes differ by the pool alone: the outer product has more weights than a pair as it is, and the mean has none.",
        "Claims on MovieLens (attention, and L2 of the ids in the batch) need data that may not be passed on.",
    ),
)
