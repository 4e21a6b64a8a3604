"""Is attention over fields better than products of fields, on a census?

regard arena questions.crosses:QUESTION --rows docs/findings/rows/crosses.jsonl

About 13 core-minutes, estimated: 108 runs of 6 s, and a sixth more where rates are widened.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from regard.lab import Claim, Column, Entry, Question, Shell, above, near
from regard.lab.data.records import Records
from regard.lab.tasks import Adult, Splits
from regard.lab.train import TrainConfig
from regard.models import (
    AutoIntConfig,
    CompressedInteractionConfig,
    CrossNetworkConfig,
    FactorizationMachineConfig,
    ModelConfig,
)

SONG = "Song et al. 2019, arXiv 1810.11921"
SHELLS = (Shell(dim=8, num_heads=2), Shell(dim=16, num_heads=2))
TRAIN = TrainConfig(
    steps=600, batch_size=256, weight_decay=0.0, eval_every=100, checkpoint_every=10_000, keep=1
)
DEEP = (32, 32)


class Income(Adult):
    """Adult, asked for the income alone."""

    name = "income"
    labels = ("income",)  # type: ignore[assignment]

    def load(self) -> Splits:
        splits = super().load()
        parts: Any = {
            part: Records({**(c := getattr(splits, part).columns), "label": c["label"][:, :1]})
            for part in ("train", "valid", "test")
        }
        return replace(splits, **parts)


MODELS: dict[str, Callable[[Column], ModelConfig]] = {
    "AutoInt": lambda c: AutoIntConfig(dim=c.shell.dim, head_dim=8, num_layers=2),
    "AutoInt+": lambda c: AutoIntConfig(
        dim=c.shell.dim, head_dim=8, num_layers=2, hidden_dims=DEEP
    ),
    "factorisation machine": lambda c: FactorizationMachineConfig(dim=c.shell.dim),
    "cross network": lambda c: CrossNetworkConfig(dim=c.shell.dim),
    "DCN": lambda c: CrossNetworkConfig(dim=c.shell.dim, hidden_dims=DEEP),
    "compressed interaction": lambda c: CompressedInteractionConfig(dim=c.shell.dim, maps=(16, 16)),
    "xDeepFM": lambda c: CompressedInteractionConfig(
        dim=c.shell.dim, maps=(16, 16), hidden_dims=DEEP
    ),
}
OTHERS = tuple(name for name in MODELS if name != "AutoInt")

# fmt: off
QUESTION = Question(
    name="crosses",
    about="Does attention over the fields of a census tell more than products of fields?",
    kind="comparison",
    entries=tuple(Entry(title=name, make=make) for name, make in MODELS.items()),
    vary=(Column(name="census", task=Income(), train=TRAIN, shell=SHELLS[0]),),
    shells=SHELLS,
    rates=(2e-3, 6e-3, 18e-3),
    baseline="AutoInt",
    factors=("size",),
    claims=(
        Claim(
            text="AutoInt is better than logistic regression, the factorisation machine, the cross network and the compressed interaction network.", source=SONG,
            smallest=0.001, expected=tuple(above("AutoInt", one) for one in ("factorisation machine", "cross network", "compressed interaction")),
        ),
        Claim(
            text="With a network beside it AutoInt is better than DCN and xDeepFM.", source=SONG, smallest=0.001,
            expected=tuple(above("AutoInt+", one) for one in ("DCN", "xDeepFM")),
        ),
        Claim(
            text="All models of the census are within 0.01 of AUC.", source="ours, of adult_mmoe and its baselines", smallest=0.001,
            expected=tuple(near("AutoInt", one, within=0.01) for one in OTHERS),
        ),
    ),
    limits=(
        "32,561 people, of whom the test rows count in each interval: earlier pages had the seeds alone, and intervals a tenth as wide.",
        "Logistic regression is chance here, and what does not exceed it with every seed has no verdict. Sizes are the models' own, from 200 weights to 5,000.",
        "No data of advertisements: fields are 11, their values few, and crosses of rare values, for which these models are made, hardly occur.",
    ),
)
