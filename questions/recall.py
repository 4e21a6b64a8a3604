"""What can a causal mechanism look up, with how many bytes of state?

regard arena questions.recall:QUESTION --rows docs/findings/rows/recall.jsonl

About 22 core-minutes, estimated: 432 runs of 3 s, and a sixth more where rates are widened.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from questions._models import ReaderConfig
from regard.lab import Claim, Column, Entry, Question, Shell, above, reaches
from regard.lab.experiment.question import Fitted
from regard.lab.tasks.fingerprint import Lookup
from regard.lab.train.short import Short, row_accuracies


class Needles(Lookup):
    """Lookup with more keys than a row of training holds, so that longer rows have keys of the same vocabulary."""

    name = "needles"

    num_pairs: int = 16
    causal: bool = True
    num_keys: int = 64


TASK = Needles()
LONGER = {
    f"{n} pairs": replace(TASK, num_pairs=n, train_size=1, valid_size=1, test_size=128)
    for n in (32, 64)
}


def beyond(fitted: Fitted) -> dict[str, float]:
    """Accuracy on rows two and four times as long."""
    return {
        name: float(row_accuracies(fitted.model, task.load().test).mean())
        for name, task in LONGER.items()
    }


def _sized(
    name: str, option: str, sizes: tuple[int, int, int], title: str = "", **more: Any
) -> Iterator[Entry]:
    """A mechanism at the three state sizes: 64, 128 and 256 numbers."""
    for numbers, size in zip((64, 128, 256), sizes, strict=True):
        yield Entry(mixer=name, title=f"{title or name}, {numbers}", options={option: size, **more})


CONV: dict[str, Any] = {"conv_size": None}
ELEVEN = (
    *_sized("linear", "num_kv_heads", (1, 2, 4)),
    *_sized("efficient", "num_kv_heads", (1, 2, 4)),
    *_sized("performer", "num_features", (8, 16, 32), num_kv_heads=1),
    *_sized("rfa", "num_features", (4, 8, 16), num_kv_heads=1),
    *_sized("scalar_decay", "key_dim", (2, 4, 8), "retention"),
    *_sized("scalar_decay", "key_dim", (2, 4, 8), "lightning", form="lightning"),
    *_sized("scalar_decay", "key_dim", (1, 2, 4), "mamba2", form="mamba2"),
    *_sized("gated_linear", "key_dim", (2, 4, 8), **CONV),
    *_sized("gated_linear", "key_dim", (2, 4, 8), "hgrn2", form="hgrn2"),
    *_sized("gated_delta", "key_dim", (2, 4, 8), **CONV),
    *_sized("kimi_delta", "key_dim", (2, 4, 8), **CONV),
)
ARORA = "Arora et al. 2023, arXiv 2312.04927"
BASED = "Arora et al. 2024, arXiv 2402.18668"
STATES = ("linear", "performer", "rfa", "gated_linear", "gated_delta")
SHELLS = tuple(
    Shell(position="none", dim=32, num_layers=1, fields={"norm": norm}) for norm in ("layer", "rms")
)

# fmt: off
QUESTION = Question(
    name="recall",
    about="What does a causal mechanism look up among 16 pairs, with 256, 512 or 1,024 bytes of state?",
    kind="comparison",
    entries=(Entry(mixer="softmax"), *ELEVEN),
    vary=(
        Column(name="16 pairs", task=TASK, train=Short(steps=300), shell=SHELLS[0], model=ReaderConfig),
    ),
    shells=SHELLS,
    rates=(5e-3, 1e-2, 2e-2),
    measures=beyond,
    claims=(
        Claim(text="Attention recalls everything.", source=ARORA, smallest=0.02, expected=(reaches("softmax", 0.95),)),
        Claim(
            text="A linear mechanism recalls the more, the larger its state.", source=BASED, smallest=0.05,
            expected=tuple(above(f"{name}, 256", f"{name}, 64") for name in STATES),
        ),
        Claim(text="More features are better.", source="Choromanski et al. 2020, arXiv 2009.14794", smallest=0.05, expected=(above("performer, 256", "performer, 64"),)),
        Claim(
            text="A linear mechanism, whose state is fixed, recalls less than softmax attention.", source=f"Poli et al. 2024, arXiv 2403.17844; {ARORA}",
            smallest=0.05, expected=(above("softmax", "linear, 256"),),
        ),
        Claim(
            text="With a state as small as this, no linear mechanism reaches attention.", source=ARORA, smallest=0.05,
            expected=tuple(above("softmax", f"{name}, 64") for name in (*STATES, "efficient", "lightning")),
        ),
    ),
    limits=(
        "One layer of width 32, 300 steps, no positions: looking up needs none, and the mechanisms' short convolutions are left out, so that none has a shift.",
        "A pair is one token. That 32 bits of values fit into a state does not say that 300 steps find how: a low cell may be unfinished training.",
        "At 64 numbers retention turns its two channels of keys away, mamba2 has one and hgrn2 forgets as it writes: no better than the bag, they enter no verdict.",
        "A window holds none of the pairs: how far one reaches is asked in questions.reach. Softmax keeps all: 32 tokens of 64 numbers, and no state of a fixed size.",
    ),
)
