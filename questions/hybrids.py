"""How much attention does a hybrid need to look up as attention does?

regard arena questions.hybrids:QUESTION --rows docs/findings/rows/hybrids.jsonl

About 25 core-minutes: 100 runs of 6 to 24 s, and a sixth more where rates are widened.
"""

from typing import Any

from questions._models import ReaderConfig
from questions.recall import ARORA, TASK, beyond
from regard.lab import Claim, Column, Entry, Question, Shell, above, near
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


KINDS: dict[str, Any] = {
    "gated_delta": ("gated_delta", {"key_dim": 2, "conv_size": None}),
    "scalar_decay": ("scalar_decay", {"key_dim": 2}),
}
PER_ATTENTION = {"3:1": 3, "1:1": 1}
DEEP = tuple(
    Shell(dim=32, num_heads=2, num_layers=4, position="none", fields={"norm": norm})
    for norm in ("layer", "rms")
)
ATTENTION = "attention alone"

# fmt: off
QUESTION = Question(
    name="hybrids",
    about="How many layers of attention among four does it take to look up as attention does?",
    kind="comparison",
    entries=(
        Entry(title=ATTENTION, make=_hybrid(["softmax"])),
        *(
            Entry(title=f"{ratio} of {kind}", make=_hybrid([layer] * count + ["softmax"]))
            for kind, layer in KINDS.items() for ratio, count in PER_ATTENTION.items()
        ),
        *(Entry(title=f"{kind} alone", make=_hybrid([layer])) for kind, layer in KINDS.items()),
    ),
    vary=(Column(name="16 pairs", task=TASK, train=Short(steps=500), shell=DEEP[0], model=ReaderConfig),),
    shells=DEEP,
    rates=(2e-3, 4e-3, 8e-3),
    baseline=ATTENTION,
    measures=beyond,
    claims=(
        Claim(
            text="One layer of attention in four recalls as attention alone does, within 0.05.",
            source="Moonshot AI 2025, arXiv 2510.26692, of kimi_delta; here of gated_delta and scalar_decay", smallest=0.02,
            expected=tuple(near(f"3:1 of {kind}", ATTENTION, within=0.05) for kind in KINDS),
        ),
        Claim(
            text="One layer of attention in two does, too.", source="as above", smallest=0.02,
            expected=tuple(near(f"1:1 of {kind}", ATTENTION, within=0.05) for kind in KINDS),
        ),
        Claim(
            text="Without any attention less is recalled: 0.1 and more.", source=ARORA, smallest=0.05,
            expected=tuple(above(ATTENTION, f"{kind} alone", by=0.1) for kind in KINDS),
        ),
    ),
    limits=(
        "Four layers of width 32, whose states have 64 numbers each: two channels of keys in two heads, so that the states alone are short of room.",
        "Attention stands last in each group of layers. Positions are added to none. gated_delta is asked without its short convolution: with it, one layer in four is at 0.56 after 400 steps, since it mixes neighbours, each of which is a whole pair here.",
        "One in eight is not asked: a stack of eight layers needs twice the hours, and one of width 32 with a convolution learned nothing in 300 steps.",
        "One layer of attention solves this task alone: whether it does among others is asked, and not what a hybrid is worth to language.",
    ),
)
