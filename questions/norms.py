"""Does post-norm need a warm-up, in a stack deep enough to tell?

regard arena questions.norms:QUESTION --rows docs/findings/rows/norms.jsonl

About 9 core-minutes, estimated: 96 runs of 5 s, and a sixth more where rates are widened.
"""

from questions._models import ReaderConfig
from regard.lab import Claim, Column, Entry, Question, Shell, above, near, reaches
from regard.lab.tasks.fingerprint import Lookup
from regard.lab.train.short import Short

XIONG = "Xiong et al. 2020, arXiv 2002.04745"
SHELLS = tuple(
    Shell(dim=32, num_layers=6, position="none", fields={"feed_forward": one})
    for one in ("gelu", "relu")
)


def _column(name: str, warmup: float) -> Column:
    return Column(
        name=name,
        task=Lookup(num_pairs=12),
        train=Short(steps=160, warmup=warmup),
        shell=SHELLS[0],
        model=ReaderConfig,
    )


# fmt: off
QUESTION = Question(
    name="norms",
    about="Does post-norm need a warm-up in a stack of six layers, where pre-norm needs none?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax", title="pre-norm"),
        Entry(mixer="softmax", title="post-norm", model={"norm_first": False}),
    ),
    vary=(_column("warm-up", 0.1), _column("no warm-up", 0.0)),
    shells=SHELLS,
    rates=(1e-3, 2e-3, 4e-3),
    baseline="pre-norm",
    factors=("norm_first",),
    claims=(
        Claim(
            text="Post-norm needs a warm-up: it is worse without.", source=XIONG, smallest=0.03,
            expected=(above("pre-norm", "post-norm", by=0.05, column="no warm-up"), near("pre-norm", "post-norm", within=0.05, column="warm-up")),
        ),
        Claim(text="Pre-norm needs none: it loses less than 0.03 without.", source=XIONG, smallest=0.02, expected=(reaches("pre-norm", 0.95, column="no warm-up"),)),
        Claim(
            text="Without a warm-up, pre-norm is better than post-norm.", source=XIONG, smallest=0.03, expected=(above("pre-norm", "post-norm", column="no warm-up"),),
        ),
    ),
    limits=(
        "A bound holds in one column, so that the need of a warm-up is told by what lies between the norms with it and without.",
        "Each finds its own rate, and post-norm may take a smaller one: what is left of the difference is no matter of the rate. At the same rate it is larger, and the rows show that.",
        "Post-norm that dies is no better than the bag, and has then no verdict: the page counts the runs that died.",
        "Six layers of width 32 and 160 steps, in which pre-norm just ends: with twice as many post-norm ends too, and what is asked is what a warm-up saves.",
    ),
)
