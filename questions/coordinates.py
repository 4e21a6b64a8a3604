"""Do convolutions learn where a pixel is, and does it help to tell them?

regard arena questions.coordinates:QUESTION --rows docs/findings/rows/coordinates.jsonl

About 8 core-minutes, estimated: 96 runs of 4 s, and a sixth more where rates are widened.
"""

from functools import partial

from questions.gates import FusedConfig
from regard.lab import Claim, Column, Entry, Question, Shell, above, below, stays_below
from regard.lab.tasks import PlaceReaderConfig, WhitePixel
from regard.lab.train import TrainConfig

LIU = "Liu et al. 2018, arXiv 1807.03247"
SHELLS = (Shell(dim=8), Shell(dim=16))  # channels
TRAIN = TrainConfig(
    steps=800, batch_size=32, weight_decay=0.0, eval_every=100, checkpoint_every=10_000, keep=1
)
PLACES = {"drawn evenly": False, "a quarter unseen": True}


# fmt: off
def _reader(coordinates: bool, column: Column) -> PlaceReaderConfig:
    return PlaceReaderConfig(channels=column.shell.dim, coordinates=coordinates, **column.task.facts)


def _line(fusion: str, column: Column) -> FusedConfig:
    return FusedConfig(fusion=fusion, **column.task.facts)


QUESTION = Question(
    name="coordinates",
    about="How near does a small network place a white pixel, with and without coordinates among its inputs?",
    kind="comparison",
    entries=(
        Entry(title="plain convolutions", make=partial(_reader, False)),
        Entry(title="with coordinates", make=partial(_reader, True)),
        Entry(title="no mixing", make=partial(_line, "linear")),
        Entry(title="the bag", make=partial(_line, "mean")),
    ),
    vary=tuple(Column(name=name, task=WhitePixel(quadrant=quadrant), train=TRAIN, shell=SHELLS[0]) for name, quadrant in PLACES.items()),
    shells=SHELLS,
    rates=(2e-3, 5e-3, 12.5e-3),
    baseline="plain convolutions",
    factors=("size",),
    claims=(
        Claim(
            text="With coordinates among its inputs a network places the pixel within half a pixel, seen quarter or not.", source=LIU,
            smallest=0.1, expected=tuple(stays_below("with coordinates", 0.5, column=name) for name in PLACES),
        ),
        Claim(
            text="Plain convolutions are worse, where a quarter was never seen and where places are drawn evenly.", source=LIU,
            smallest=0.1, expected=tuple(above("plain convolutions", "with coordinates", column=name) for name in PLACES),
        ),
        Claim(text="Coordinates as two channels help where place matters.", source=LIU, smallest=0.1, expected=(below("with coordinates", "plain convolutions", column="drawn evenly"),)),
    ),
    limits=(
        "Pictures of 32 x 32 pixels; the paper has 64 x 64, and networks that keep their width. These end in a linear layer over 4 places, which knows a part of where it is.",
        "Coordinates add two channels to the first layer alone: 1 % of the weights.",
        "Places drawn evenly are some 256 of 1,024, a quarter unseen one block of them: the first asks between what was seen, the second beyond it.",
    ),
)
