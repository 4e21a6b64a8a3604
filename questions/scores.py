"""How are a query and a key scored best, and where should a window stand?

regard arena questions.scores:QUESTION --rows docs/findings/rows/scores.jsonl

About 15 core-minutes, estimated: 216 runs of 3.5 s, and a sixth more where rates are widened.
"""

from questions._models import ReaderConfig
from regard.lab import Claim, Column, Entry, Question, Shell, above, near
from regard.lab.tasks.fingerprint import Lookup, Order
from regard.lab.train.short import Short

LUONG = "Luong et al. 2015, arXiv 1508.04025"
SHELLS = tuple(Shell(dim=32, num_layers=1, position=one) for one in ("learned", "sinusoidal"))


def _local(title: str, **options: object) -> Entry:
    return Entry(mixer="luong_local", title=title, options={"window_size": 4, **options})


# fmt: off
QUESTION = Question(
    name="scores",
    about="Which score of a query and a key is learned best, and does a window that is predicted find what a fixed one cannot?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax", title="scaled dot product"),
        *(
            Entry(mixer="scored", title=score, options={"score": score}) for score in ("dot", "general", "additive", "cosine")
        ),
        _local("local-m, window 4"),
        _local("local-p, window 4", alignment="predictive"),
    ),
    vary=(
        Column(name="lookup", task=Lookup(), train=Short(steps=400), shell=SHELLS[0], model=ReaderConfig),
        Column(name="order", task=Order(), train=Short(steps=300), shell=SHELLS[0], model=ReaderConfig),
    ),
    shells=SHELLS,
    rates=(5e-3, 1e-2, 2e-2),
    baseline="scaled dot product",
    claims=(
        Claim(
            text="Dot product and additive score are alike at small widths.", source="Vaswani et al. 2017, arXiv 1706.03762, section 3.2.1", smallest=0.01,
            expected=tuple(near("dot", "additive", within=0.03, column=name) for name in ("lookup", "order")),
        ),
        Claim(
            text="The general score is better than the dot product where a window stands, and the dot product where all is seen.", source=f"{LUONG}, table 4",
            smallest=0.01, expected=(above("dot", "general", column="lookup"),),
        ),
        Claim(
            text="A predicted window is better than a monotonic one.", source=f"{LUONG}, table 4", smallest=0.02,
            expected=(above("local-p, window 4", "local-m, window 4", column="order"),),
        ),
        Claim(
            text="All of the input is better than a window of it, where any of it may be asked.",
            source="ours, against Luong et al. 2015, whose translations align nearly monotonically", smallest=0.02,
            expected=(above("general", "local-p, window 4", column="order"),),
        ),
    ),
    limits=(
        "One layer of width 32, four heads of 8: whether scores part at greater widths is asked in questions.width.",
        "The order is one permutation, of which a monotonic window of 4 holds no answer: it then has no verdict. Luong's windows were made for translation.",
        "Queries and keys are projected in all of them, which gives the dot product the matrix that the general score brings.",
    ),
)
