"""How much attention does a hybrid need to look up as attention does?

regard arena questions.hybrids:QUESTION --rows docs/findings/rows/hybrids.jsonl

About 20 core-minutes, estimated: 84 runs of 12 s, and a sixth more where rates are widened.
"""

from typing import Any

from questions.recall import ARORA, TASK, beyond
from regard.lab import Claim, Column, Entry, Question, Shell, above, near
from regard.lab.experiment.models import ReaderConfig
from regard.lab.train.short import Short


def _hybrid(mixers: list[Any]) -> Any:
    def make(column: Column) -> ReaderConfig:
        shell, task = column.shell, column.task
        facts: Any = {
            name: getattr(task, name) for name in ("vocab_size", "max_len", "num_classes", "causal")
        }
        sizes: Any = dict(dim=shell.dim, num_heads=shell.num_heads, num_layers=shell.num_layers)
        return ReaderConfig(
            mixers=mixers, position=shell.position, **facts, **sizes, **shell.fields
        )

    return make


SMALL = ("gated_delta", {"key_dim": 2})
RATIOS: dict[str, list[Any]] = {
    "0:1": ["softmax"],
    "1:1": [SMALL, "softmax"],
    "3:1": [*[SMALL] * 3, "softmax"],
    "7:1": [*[SMALL] * 7, "softmax"],
    "1:0": [SMALL],
}
DEEP = tuple(
    Shell(dim=32, num_heads=2, num_layers=8, position="none", fields={"norm": norm})
    for norm in ("layer", "rms")
)

# fmt: off
QUESTION = Question(
    name="hybrids",
    about="How many layers of attention among eight does it take to look up as attention does?",
    kind="comparison",
    entries=tuple(
        Entry(title=f"{ratio} of gated_delta and softmax", make=_hybrid(mixers))
        for ratio, mixers in RATIOS.items()
    ),
    vary=(Column(name="16 pairs", task=TASK, train=Short(steps=300), shell=DEEP[0], model=ReaderConfig),),
    shells=DEEP,
    rates=(2e-3, 4e-3, 8e-3),
    baseline="0:1 of gated_delta and softmax",
    measures=beyond,
    claims=(
        Claim(
            text="One layer of attention in eight recalls as attention alone does, within 0.05.",
            source="Lieber et al. 2024, arXiv 2403.19887, of Mamba; here of gated_delta", smallest=0.02,
            expected=(near("7:1 of gated_delta and softmax", "0:1 of gated_delta and softmax", within=0.05),),
        ),
        Claim(
            text="One in four does.", source="Moonshot AI 2025, arXiv 2510.26692, of kimi_delta; here of gated_delta", smallest=0.02,
            expected=(near("3:1 of gated_delta and softmax", "0:1 of gated_delta and softmax", within=0.05),),
        ),
        Claim(
            text="Without any, less is recalled: 0.1 and more.", source=ARORA, smallest=0.05,
            expected=(above("0:1 of gated_delta and softmax", "1:0 of gated_delta and softmax", by=0.1),),
        ),
    ),
    limits=(
        "Eight layers of width 32, whose states have 64 numbers each: two channels of keys in two heads, so that the states alone are short of room.",
        "Attention stands last in each group of layers. Positions are added to none; the others have a short convolution, as published, which looking up does not need.",
        "One layer of attention solves this task alone: whether it does among others is asked, and not what a hybrid is worth to language.",
    ),
)
