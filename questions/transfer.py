"""What pre-trains alike and fine-tunes worse? Bytes of Python first, then a task that needs pairs of tokens.

regard arena questions.transfer:QUESTION --rows docs/findings/rows/transfer.jsonl

About 16 core-minutes, estimated: 120 runs of 7 s, and a sixth more where rates are widened.
"""

from collections.abc import Iterator

from questions._models import ReaderConfig
from regard.lab import Claim, Column, Entry, Question, Shell, above
from regard.lab.tasks import StdlibBytes
from regard.lab.tasks.fingerprint import Lookup
from regard.lab.train import TrainConfig
from regard.lab.train.short import Short

TAY = "Tay et al. 2020, arXiv 2005.00743"
SHELLS = (Shell(position="learned"), Shell(position="sinusoidal"))
FIRST = Column(
    name="bytes first",
    task=StdlibBytes(length=48, valid_size=64, test_size=64),
    train=TrainConfig(
        tokens=200_000, batch_size=16, lr=4e-3, eval_every=200, checkpoint_every=10_000, keep=1
    ),
    shell=SHELLS[0],
)


def _both(title: str, mixer: str) -> Iterator[Entry]:
    """Trained on the task alone, and on bytes before."""
    yield Entry(mixer=mixer, title=title)
    yield Entry(mixer=mixer, title=f"{title}, bytes first", before=FIRST)


# fmt: off
QUESTION = Question(
    name="transfer",
    about="Does pre-training on bytes help each mechanism alike, once the task needs pairs of tokens?",
    kind="comparison",
    entries=(
        *_both("softmax", "softmax"),
        *_both("dense", "synthesizer_dense"),
        *_both("random", "synthesizer_random"),
        *_both("linear", "linear"),
    ),
    vary=(
        Column(name="lookup", task=Lookup(causal=True), train=Short(steps=300), shell=SHELLS[0], model=ReaderConfig),
    ),
    shells=SHELLS,
    rates=(3e-3, 6e-3, 12e-3),
    factors=("before",),
    claims=(
        Claim(
            text="Fine-tuned after pre-training, dense and random are worse than softmax.", source=f"{TAY} (GLUE: 72.0 and 75.1 against 83.5)", smallest=0.03,
            expected=tuple(above("softmax, bytes first", f"{name}, bytes first") for name in ("dense", "random")),
        ),
        Claim(
            text="So is linear attention.", source="our extension of arXiv 2005.00743", smallest=0.03, expected=(above("softmax, bytes first", "linear, bytes first"),),
        ),
        Claim(
            text="Weights that do not depend on content recall less than softmax attention.", source="Arora et al. 2023, arXiv 2312.04927", smallest=0.05,
            expected=(above("softmax", "random"),),
        ),
    ),
    limits=(
        "Two layers of width 64; 200,000 bytes of Python first, then 300 steps of looking up. It stands for GLUE, whose pairs of sentences the paper holds responsible, and is not GLUE.",
        "The weights that fit are taken: blocks and places, not the embeddings of bytes. All pre-train at one rate, the one at which softmax is best.",
        "How alike they pre-train is told in questions.synthesizer, on the same bytes.",
        "A table cannot look up at all: where random answers no better than the bag, it has no verdict, and its row says so.",
    ),
)
