"""Do convolutions learn where a pixel is, and does it help to tell them?

regard arena questions.coordinates:QUESTION --rows docs/findings/rows/coordinates.jsonl

About 25 core-minutes: 130 runs, of strided networks 10 s, of weighed places 15 s, lines 3 s, and a sixth more where rates are widened.
"""

from functools import partial

import torch
from torch import Tensor, nn

from questions.gates import FusedConfig
from regard.lab import Claim, Column, Entry, Question, Shell, above, below, stays_below
from regard.lab.tasks import PlaceReaderConfig, WhitePixel
from regard.lab.tasks.vectors import SIZE
from regard.lab.train import TrainConfig

LIU = "Liu et al. 2018, arXiv 1807.03247"
SHELLS = (Shell(dim=32), Shell(dim=48))  # channels
TRAIN = TrainConfig(
    steps=1200, batch_size=32, weight_decay=0.0, eval_every=300, checkpoint_every=10_000, keep=1
)
PLACES = {"drawn evenly": False, "a quarter unseen": True}


class WeighedConfig(PlaceReaderConfig):
    """Convolutions that see one pixel each, and a mean over all places with learned weights; without coordinates these are zero."""

    name = "weighed_places"

    def build(self) -> nn.Module:
        return Weighed(self)


class Weighed(nn.Module):
    """model(x [B pixels]) -> sum_p softmax_p(a_p) v_p [B 2],   [a_p v_p] = W relu(U [x_p place_p] + b) + c: CoordConv, 1 x 1"""

    def __init__(self, config: PlaceReaderConfig):
        super().__init__()
        where = torch.arange(SIZE) * 2 / (SIZE - 1) - 1
        places = torch.cartesian_prod(where, where) * config.coordinates
        self.register_buffer("places", places, persistent=False)
        self.places: Tensor
        C = config.channels
        self.pixels = nn.Sequential(nn.Linear(3, C), nn.ReLU(), nn.Linear(C, 1 + config.num_tasks))

    def forward(self, x: Tensor) -> Tensor:
        places = self.places.expand(len(x), -1, -1)
        found = self.pixels(torch.cat([x[..., None], places], -1))
        return (found[..., :1].softmax(1) * found[..., 1:]).sum(1)


# fmt: off
def _strided(coordinates: bool, column: Column) -> PlaceReaderConfig:
    return PlaceReaderConfig(channels=column.shell.dim, coordinates=coordinates, **column.task.facts)


def _weighed(coordinates: bool, column: Column) -> WeighedConfig:
    return WeighedConfig(channels=column.shell.dim, coordinates=coordinates, **column.task.facts)


def _line(fusion: str, column: Column) -> FusedConfig:
    return FusedConfig(fusion=fusion, **column.task.facts)


QUESTION = Question(
    name="coordinates",
    about="How near does a small network place a white pixel, with and without coordinates among its inputs?",
    kind="comparison",
    entries=(
        Entry(title="strided", make=partial(_strided, False)),
        Entry(title="strided, coordinates", make=partial(_strided, True)),
        Entry(title="weighed places", make=partial(_weighed, False)),
        Entry(title="weighed places, coordinates", make=partial(_weighed, True)),
        Entry(title="no mixing", make=partial(_line, "linear")),
        Entry(title="the bag", make=partial(_line, "mean")),
    ),
    vary=tuple(Column(name=name, task=WhitePixel(quadrant=quadrant), train=TRAIN, shell=SHELLS[0]) for name, quadrant in PLACES.items()),
    shells=SHELLS,
    rates=(1e-3, 3e-3, 1e-2),
    baseline="strided",
    factors=("size",),
    claims=(
        Claim(
            text="With coordinates among its inputs a network places the pixel within half a pixel, seen quarter or not.", source=LIU,
            smallest=0.1, expected=tuple(stays_below("weighed places, coordinates", 0.5, column=name) for name in PLACES),
        ),
        Claim(
            text="Plain convolutions are worse, where a quarter was never seen and where places are drawn evenly.", source=LIU,
            smallest=0.1, expected=tuple(above("strided", "weighed places, coordinates", column=name) for name in PLACES),
        ),
        Claim(text="Coordinates as two channels help where place matters.", source=LIU, smallest=0.1, expected=(below("strided, coordinates", "strided", column="drawn evenly"),)),
        Claim(
            text="In one network, coordinates are what finds the quarter that was never seen.", source=LIU,
            smallest=0.1, expected=(below("strided, coordinates", "strided", by=1.0, column="a quarter unseen"),),
        ),
    ),
    limits=(
        "Pictures of 32 x 32 pixels; the paper has 64 x 64. Strided networks end in a linear layer over 4 places, which knows a part of where it is: plain convolutions at their best.",
        "The paper's network with coordinates ends in the maximum over places, which learned nothing here in 600 steps: in its stead places are weighed, as by attention.",
        "Weighed places without coordinates cannot know where they are: they show that it is not the weighing that finds the place, and pass no line.",
        "Sizes differ: strided networks have some 28,000 weights, weighed places 227; coordinates add two channels to the first layer. With the paper's eight channels strided networks learned nothing in most runs.",
        "Places drawn evenly are some 256 of 1,024, a quarter unseen one block of them: the first asks between what was seen, the second beyond it.",
    ),
)
