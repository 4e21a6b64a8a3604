"""Which mechanisms track a state: parity, trained to 40 bits and tested to 256?

regard arena questions.parity:QUESTION --rows docs/findings/rows/parity.jsonl

About 12 core-minutes, estimated: 120 runs of 5 s, and a sixth more where rates are widened.
"""

from dataclasses import replace

from questions._models import ReaderConfig
from questions._tasks import Parity
from regard.lab import Claim, Column, Entry, Question, Shell, above, reaches
from regard.lab.experiment.baselines import Gru
from regard.lab.experiment.question import Fitted
from regard.lab.train.short import Short, answered

TASK = Parity(causal=True, train_size=12800)
LONGER = replace(TASK, length=256, train_size=1, valid_size=1, test_size=128)
SHELLS = tuple(Shell(dim=32, position="none", fields={"norm": one}) for one in ("layer", "rms"))
GRAZZI, LATE = "Grazzi et al. 2024, arXiv 2411.12537", {"measure": "bits 129 to 256"}


def beyond(fitted: Fitted) -> dict[str, float]:
    """Accuracy at bits beyond those of training."""
    _, right = answered(fitted.model, LONGER.load().test)
    return {
        "bits 41 to 128": float(right[:, 40:128].float().mean()),
        "bits 129 to 256": float(right[:, 128:].float().mean()),
    }


# fmt: off
QUESTION = Question(
    name="parity",
    about="Who keeps the parity of 256 bits after rows of 40?",
    kind="comparison",
    entries=(
        Entry(mixer=Gru, title="gru"),
        Entry(mixer="softmax"),
        Entry(mixer="softmax", title="softmax, ALiBi", model={"position": "alibi"}),
        Entry(mixer="linear"),
        Entry(mixer="scalar_decay", title="retention"),
        Entry(mixer="gated_linear"),
        Entry(mixer="gated_delta"),
        Entry(mixer="gated_delta", title="gated_delta, negative eigenvalues", options={"negative_eigenvalues": True}),
    ),
    vary=(
        Column(name="40 bits", task=TASK, train=Short(steps=400), shell=SHELLS[0], model=ReaderConfig),
    ),
    shells=SHELLS,
    rates=(6e-3, 12e-3, 24e-3),
    baseline="gru",
    measures=beyond,
    factors=("position",),
    claims=(
        Claim(text="A recurrent network tracks a state over any length.", source=f"{GRAZZI}, of the LSTM", smallest=0.02, expected=(reaches("gru", 0.99, **LATE),)),
        Claim(
            text="Negative eigenvalues let a linear recurrence track parity, and without them it does not.", source=GRAZZI, smallest=0.05,
            expected=(above("gated_delta, negative eigenvalues", "gated_delta", by=0.1, **LATE),),
        ),
        Claim(
            text="A recurrent network tracks it where attention does not.", source="Merrill et al. 2024, arXiv 2404.08819", smallest=0.05,
            expected=(above("gru", "softmax, ALiBi", by=0.1, **LATE),),
        ),
    ),
    limits=(
        "Every prefix of a row is asked, which makes parity as easy to learn as it can be; with the last bit alone, few mechanisms start at all within 400 steps.",
        "Two layers of width 32, no positions, since those beyond the 40th would be new; ALiBi, which has no new ones, is given to softmax, which is no better than the bag without.",
        "Accuracy of one half is none. What does not exceed the bag on 40 bits has no verdict beyond them.",
        "The verdicts at 256 bits have intervals of seeds alone.",
    ),
)
