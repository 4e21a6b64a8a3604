"""Which positions serve at the trained length, and which at four times as many bytes?

regard arena questions.positions:QUESTION --rows docs/findings/rows/positions.jsonl

About 15 core-minutes, estimated: 96 runs of 8 s, and a sixth more where rates are widened.
"""

from functools import cache

from regard.lab import Claim, Column, Entry, Question, Shell, below, near
from regard.lab.data.records import Records
from regard.lab.experiment.question import Fitted
from regard.lab.tasks import StdlibBytes
from regard.lab.train import TrainConfig
from regard.lab.train.batches import in_order

KINDS = ("sinusoidal", "learned", "none", "rotary", "alibi", "t5")
SHELLS = tuple(Shell(fields={"max_len": 256, "feed_forward": one}) for one in ("gelu", "swiglu"))
TRAIN = TrainConfig(tokens=300_000, batch_size=16, eval_every=100, checkpoint_every=10_000, keep=1)
LONGER = StdlibBytes(length=256, valid_size=1, test_size=64)
PRESS = "Press et al. 2021, arXiv 2108.12409"


@cache
def _longer() -> Records:
    return LONGER.load().test


def beyond(fitted: Fitted) -> dict[str, float]:
    """Bits of a byte in windows of 256, each predicted from up to 255 before it."""
    return {"256 bytes": LONGER.score(fitted.model, in_order(_longer(), 16, LONGER.collate))}


# fmt: off
QUESTION = Question(
    name="positions",
    about="Which positions serve softmax attention on the 64 bytes that it was trained on, and on 256?",
    kind="comparison",
    entries=tuple(Entry(mixer="softmax", title=one, model={"position": one}) for one in KINDS),
    vary=(
        Column(name="64 bytes", task=StdlibBytes(length=64, valid_size=128, test_size=512), train=TRAIN, shell=SHELLS[0]),
    ),
    shells=SHELLS,
    rates=(2e-3, 4e-3, 8e-3),
    baseline="sinusoidal",
    measures=beyond,
    factors=("position",),
    claims=(
        Claim(text="Sinusoids do not extrapolate: ALiBi loses less.", source=PRESS, smallest=0.05, expected=(below("alibi", "sinusoidal", measure="256 bytes"),)),
        Claim(
            text="Rotary positions extrapolate better than sinusoids, and T5's bias better than both.", source=PRESS, smallest=0.05,
            expected=(below("rotary", "sinusoidal", measure="256 bytes"), below("t5", "rotary", measure="256 bytes"), below("t5", "sinusoidal", measure="256 bytes")),
        ),
        Claim(
            text="Learned positions and sinusoids are as good as each other at the trained length, within 0.05 bits.", source="Vaswani et al. 2017, arXiv 1706.03762",
            smallest=0.02, expected=(near("learned", "sinusoidal", within=0.05),),
        ),
        Claim(
            text="Relative positions beat absolute ones at the trained length.", source="Su et al. 2021, arXiv 2104.09864; Shaw et al. 2018, arXiv 1803.02155",
            smallest=0.02, expected=tuple(below(one, "sinusoidal") for one in ("rotary", "alibi", "t5")),
        ),
        Claim(
            text="A causal model hardly needs positions: within 0.1 bits of sinusoids without any.", source="Haviv et al. 2022, arXiv 2203.16634", smallest=0.02,
            expected=(near("none", "sinusoidal", within=0.1),),
        ),
    ),
    limits=(
        "Two layers of width 64 and 300,000 bytes: how fast a kind is learned counts as much as what it can say.",
        "The measure at 256 bytes is of whole windows, whose last three quarters lie beyond what was trained; learned positions there are as they began.",
        "Its interval is of seeds alone.",
    ),
)
