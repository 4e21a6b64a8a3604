"""How far does each mechanism reach? The symbol at a named distance, by distance.

regard arena questions.reach:QUESTION --rows docs/findings/rows/reach.jsonl

About 10 core-minutes, estimated: 144 runs of 4 s, and a sixth more where rates are widened.
"""

from questions._mixers import Convolution
from questions._models import ReaderConfig
from questions._tasks import Reach
from regard.functional.patterns import Window
from regard.lab import Claim, Column, Entry, Question, Shell, above, near, stays_below
from regard.lab.experiment.baselines import Gru
from regard.lab.experiment.question import Fitted
from regard.lab.train.short import Short, answered

TASK = Reach(causal=True)
NONE = {"position": "none"}
SHELLS = tuple(Shell(dim=32, num_layers=1, position=one) for one in ("rotary", "learned"))
UNLIKE = (*[Window(1, 0)] * 3, Window(13, 0))  # as many pairs as four windows of 4
ARORA = "Arora et al. 2024, arXiv 2402.18668"


def by_distance(fitted: Fitted) -> dict[str, float]:
    """Accuracy of the test's questions at each distance."""
    tokens, right = answered(fitted.model, fitted.splits.test)
    named = (tokens - 1) % len(TASK.distances)
    return {
        f"distance {far}": float(right[named == n].float().mean())
        for n, far in enumerate(TASK.distances)
    }


def _at(far: int) -> dict[str, str]:
    return {"measure": f"distance {far}"}


# fmt: off
QUESTION = Question(
    name="reach",
    about="How far back does each mechanism reach, and is a window any other than a convolution?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax"),
        Entry(mixer="softmax", title="softmax, no positions", model=NONE),
        Entry(mixer=Gru, title="gru", model=NONE),
        Entry(mixer=Convolution, title="convolution of 5", options={"size": 5}, model=NONE),
        Entry(mixer=Convolution, title="convolution of 9", options={"size": 9}, model=NONE),
        Entry(mixer="local", options={"window_size": 4}),
        Entry(mixer="local", options={"window_size": 8}),
        Entry(mixer="strided", options={"stride": 8}),
        Entry(mixer="global"),
        Entry(mixer="head_mix", title="head_mix, windows 1, 1, 1, 13", options={"patterns": UNLIKE}),
    ),
    vary=(
        Column(name="reach", task=TASK, train=Short(steps=400), shell=SHELLS[0], model=ReaderConfig),
    ),
    shells=SHELLS,
    rates=(6e-3, 12e-3, 24e-3),
    measures=by_distance,
    factors=("position",),
    claims=(
        Claim(
            text="A window recalls what lies inside it alone: a wider one more.", source=ARORA, smallest=0.05,
            expected=(above("local, window 8", "local, window 4", by=0.3, **_at(6)), stays_below("local, window 4", 0.2, **_at(6))),
        ),
        Claim(
            text="A window cannot copy what lies outside it: softmax attention copies more.", source="Poli et al. 2024, arXiv 2403.17844", smallest=0.05,
            expected=tuple(above("softmax", "local, window 8", by=0.1, **_at(far)) for far in (11, 31)),
        ),
        Claim(
            text="Local attention hardly differs from a convolution of its width: within 0.05.", source="a survey article", smallest=0.02,
            expected=(near("local, window 4", "convolution of 5", within=0.05), near("local, window 8", "convolution of 9", within=0.05)),
        ),
        Claim(
            text="A recurrent network loses what is far, attention does not.", source="Vaswani et al. 2017, arXiv 1706.03762, table 1: the length of paths",
            smallest=0.05, expected=tuple(above("softmax", "gru", by=0.1, **_at(far)) for far in (19, 31)),
        ),
        Claim(
            text="Heads of unlike patterns reach farther than heads of one window.", source="a survey article", smallest=0.05,
            expected=tuple(above("head_mix, windows 1, 1, 1, 13", "local, window 4", by=0.1, **_at(far)) for far in (6, 11)),
        ),
    ),
    limits=(
        "One layer of width 32: two layers of a window reach twice as far, and a pattern's gaps are closed by the next layer.",
        "Convolutions and the gru have an order of their own and take no positions; softmax without positions stands beside them, and positions are a factor.",
        "Which distances a stride holds is a matter of the distances: none of these is a power of two above 1. Heads of unlike windows have the pairs of four windows of 4.",
        "Verdicts at a distance have intervals of seeds alone. What answers no better than the bag over all distances has none.",
    ),
)
