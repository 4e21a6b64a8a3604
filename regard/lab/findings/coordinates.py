"""coordinates: where is the one white pixel? CoordConv beside plain convolutions, on places and on a quarter never seen."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.lab.data.records import TableRows, gathered
from regard.lab.findings.finding import Claim, Entry, Finding, below, stays_below
from regard.lab.findings.small import brief
from regard.lab.recipes import Run
from regard.lab.tasks import Batch, Splits, Task
from regard.lab.tasks.task import evaluation
from regard.models import ModelConfig
from regard.nn import CoordConv2d

SIZE = 32  # pixels


@dataclass(frozen=True, kw_only=True)
class WhitePixel(Task):
    """Row and column of the one white pixel of a picture (Liu et al. 2018, arXiv 1807.03247, section 4).

    quadrant: test on the lower right quarter and train on the others; otherwise each place is drawn into a part. The
    baseline answers the mean place of training.
    """

    name = "white_pixel"
    kind = "vectors"
    metric = "pixels off"
    better = "lower"
    baseline = "mean place"

    quadrant: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        return {"input_dim": SIZE**2, "num_tasks": 2}

    @property
    def max_len(self) -> int:
        return 1

    def load(self) -> Splits:
        place = np.stack(np.divmod(np.arange(SIZE**2), SIZE), 1)
        x, y = np.eye(SIZE**2, dtype=np.float32), (2 * place / (SIZE - 1) - 1).astype(np.float32)
        rng = np.random.default_rng(self.seed)
        unseen = (place >= SIZE // 2).all(1)
        test = np.flatnonzero(unseen if self.quadrant else rng.random(SIZE**2) < 0.25)
        rest = rng.permutation(np.setdiff1d(np.arange(SIZE**2), test))
        rows = TableRows({"x": x, "label": y})
        return Splits(rows.take(rest[100:]), rows.take(rest[:100]), rows.take(test))

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """{x [B size * size], label [B 2]: row and column from -1 to 1}"""
        return dict(gathered(items))

    def count(self, batch: Batch) -> int:
        """Pictures in a batch."""
        return len(batch["x"])

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        return (model(batch["x"]).float() - batch["label"]).square().mean()

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        """Mean distance, in pixels."""
        with evaluation(model):
            off = [(model(batch["x"]).float() - batch["label"]).norm(dim=1) for batch in batches]
        return float(torch.cat(off).mean()) * (SIZE - 1) / 2

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        splits = splits or self.load()
        train, test = splits.train, splits.test
        off = test.labels - train.labels.mean(0)
        return float(off.norm(dim=1).mean()) * (SIZE - 1) / 2


@dataclass(frozen=True, kw_only=True)
class PlaceReaderConfig(ModelConfig):
    """Four convolutions of stride 2 and a linear layer; coordinates: the first one is a CoordConv."""

    name: ClassVar[str] = "place_reader"
    kinds = ("vectors",)
    input_dim: int = SIZE**2
    num_tasks: int = 2
    channels: int = 16
    coordinates: bool = False

    def build(self) -> nn.Module:
        C = self.channels
        first = CoordConv2d if self.coordinates else nn.Conv2d
        layers: list[nn.Module] = [nn.Unflatten(1, (1, SIZE, SIZE))]
        layers += [first(1, C, 3, stride=2, padding=1), nn.ReLU()]
        for _ in range(3):
            layers += [nn.Conv2d(C, C, 3, stride=2, padding=1), nn.ReLU()]
        side = SIZE // 16
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(C * side**2, self.num_tasks))


STEPS = 4000
EVERYWHERE, QUARTER = "places drawn evenly", "a quarter never seen"
PLAIN, COORD = "convolutions", "CoordConv first"


def _entry(part: str, label: str) -> Entry:
    def run() -> Run:
        return Run(
            task=WhitePixel(quadrant=part == QUARTER),
            model=PlaceReaderConfig(coordinates=label == COORD),
            train=brief(steps=STEPS, batch_size=32, lr=3e-3, weight_decay=0.0),
        )

    return Entry(label, run, part=part)


_TRAINED = (
    stays_below(f"{EVERYWHERE}: {COORD}", 2.0),
)  # pixels: it has not stayed at the mean place

COORDINATES = Finding(
    name="coordinates",
    about="Do convolutions learn where a pixel is, and does it help to tell them?",
    entries=tuple(
        _entry(part, label) for part in (EVERYWHERE, QUARTER) for label in (PLAIN, COORD)
    ),
    claims=(
        Claim(
            "With coordinates among its inputs a network places the pixel within half a pixel, seen quarter or not.",
            "Liu et al. 2018, arXiv 1807.03247",
            (
                stays_below(f"{EVERYWHERE}: {COORD}", 0.5),
                stays_below(f"{QUARTER}: {COORD}", 0.5),
            ),
            when=_TRAINED,
        ),
        Claim(
            "Plain convolutions are worse, where a quarter was never seen and where places are drawn evenly.",
            "Liu et al. 2018, arXiv 1807.03247",
            tuple(below(f"{part}: {COORD}", f"{part}: {PLAIN}") for part in (EVERYWHERE, QUARTER)),
            when=_TRAINED,
        ),
    ),
    seeds=tuple(range(10)),
    rates=(1e-3, 3e-3),
    method=(
        f"Pictures of {SIZE} x {SIZE} pixels with one white pixel; four convolutions of stride 2, then a linear layer that reads "
        "row and column; the number is the mean distance from the pixel. Each has the better of two learning "
        "rates on validation, searched from the first seed."
    ),
    limits=(
        "One network, whose last layer knows where its features are; the paper tries many.",
        f"{STEPS:,} steps of 32 pictures: a network that stays at the mean place may leave it later.",
    ),
)
