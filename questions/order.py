"""Does the order of ten mechanisms hold when each gets three times, and nine times, the bytes?

regard arena questions.order:QUESTION --rows docs/findings/rows/order.jsonl

About 60 core-minutes, estimated: 432 runs of 8 s, and a sixth more where rates are widened.
"""

from regard.lab import Claim, Column, Entry, Question, Shell, below, near
from regard.lab.experiment.baselines import Gru
from regard.lab.tasks import StdlibBytes
from regard.lab.train import TrainConfig

BUDGETS = {"60,000 bytes": 60_000, "180,000 bytes": 180_000, "540,000 bytes": 540_000}
TASK = StdlibBytes(length=64, valid_size=64, test_size=256)
CHOROMANSKI = "Choromanski et al. 2020, arXiv 2009.14794"


def _column(name: str, tokens: int) -> Column:
    train = TrainConfig(
        tokens=tokens, batch_size=4, eval_every=tokens // 2_500, checkpoint_every=10_000, keep=1
    )
    return Column(name=name, task=TASK, train=train)


def _everywhere(better: str, than: str) -> Claim:
    """One order at all three budgets."""
    return Claim(
        text=f"{better} is better than {than} at each of three budgets.",
        source="ours: whether what one budget shows holds at nine times as much",
        smallest=0.02,
        expected=tuple(below(better, than, column=name) for name in BUDGETS),
    )


# fmt: off
QUESTION = Question(
    name="order",
    about="Does the order of ten mechanisms on bytes of Python hold at nine times the budget, at equal steps and at equal time?",
    kind="comparison",
    entries=(
        Entry(mixer="softmax"),
        Entry(mixer="local", options={"window_size": 8}),
        Entry(mixer="linear"),
        Entry(mixer="performer", options={"num_features": 32}),
        Entry(mixer="rfa", options={"num_features": 32}),
        Entry(mixer="gated_linear"),
        Entry(mixer="gated_delta"),
        Entry(mixer="forgetting"),
        Entry(mixer="synthesizer_random"),
        Entry(mixer=Gru, title="gru"),
    ),
    vary=tuple(_column(name, tokens) for name, tokens in BUDGETS.items()),
    shells=(Shell(position="sinusoidal"), Shell(position="learned")),
    rates=(4e-3, 8e-3, 16e-3),
    claims=(
        _everywhere("softmax", "linear"),
        _everywhere("gated_delta", "softmax"),
        _everywhere("forgetting", "softmax"),
        _everywhere("gated_delta", "gated_linear"),
        _everywhere("local, window 8", "softmax"),
        Claim(
            text="Performer's random features reach softmax, within 0.05 bits.", source=CHOROMANSKI, smallest=0.02,
            expected=(near("performer, features 32", "softmax", within=0.05, column="540,000 bytes"),),
        ),
        Claim(
            text="Random sines are as good as elu + 1, or better.", source="Peng et al. 2021, arXiv 2103.02143", smallest=0.02,
            expected=(below("rfa, features 32", "linear", by=-0.02, column="540,000 bytes"),),
        ),
        Claim(
            text="A random table of weights that is trained comes close to softmax: within 0.1 bits.",
            source="Tay et al. 2020, arXiv 2005.00743 (LM1B: perplexity 40.6 against 38.2)", smallest=0.02,
            expected=(near("synthesizer_random", "softmax", within=0.1, column="540,000 bytes"),),
        ),
    ),
    limits=(
        "Nine times of little: 230 to 2,100 steps of two layers of width 64, for with 118 of twice the batch softmax was behind the bag. An order that turns here warns of every page of one budget; one that holds proves nothing of nine thousand times.",
        "Added positions for all, which favour what has a shift of its own (decays, convolutions, a window): softmax with rotary ones is in questions.positions.",
        "Quality at equal time is read off the same curves on one machine, and takes our plain code for each mechanism.",
    ),
)
