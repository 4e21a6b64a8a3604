"""Regression on vectors: two tasks of chosen similarity, and the place of a white pixel."""

from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from regard.core.options import LARGEST, Range
from regard.lab.data.records import Records
from regard.lab.data.synthetic import generate_correlated_tasks
from regard.lab.tasks.table import Tabular
from regard.lab.tasks.task import Batch, Drawn, Splits
from regard.models import ModelConfig
from regard.nn import CoordConv2d

SIZE = 32  # pixels


@dataclass(frozen=True, kw_only=True)
class Regression(Tabular):
    """Rows {x [input_dim], label [K]}; the loss is the mean squared error."""

    kind = "vectors"

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B K"]:
        return model(batch["fields"]["x"]).float()

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        outputs, labels = self.columns(model, batch)
        return (outputs - labels).square().mean()


@dataclass(frozen=True, kw_only=True)
class CorrelatedTasks(Drawn, Regression):
    """Two regression tasks of chosen similarity: the synthetic data of MMoE (Ma et al. 2018, KDD, section 3.2).

        R2 = 1 - sum (y - output)^2 / sum (y - mean y)^2, mean over tasks

    The lower `rho`, the less the tasks share, and the more separate gates are worth. Labels are divided by the training
    part's deviation, which R2 does not see. The baseline is linear regression.

    rho: cosine of the two tasks' weight vectors.
    dim: numbers of an input vector.
    """

    name = "correlated_tasks"
    metric = "R2"
    baseline = "linear regression"

    rho: Annotated[float, Range(-1, 1, "between -1 and 1")] = 0.5
    dim: Annotated[int, Range(2, LARGEST, "at least 2: two weight vectors at right angles")] = 100
    num_sines: int = 4  # terms of the curve that makes labels of products
    valid_size: int = 2000
    test_size: int = 4000

    @property
    def facts(self) -> dict[str, Any]:
        return {"input_dim": self.dim, "num_tasks": 2}

    def load(self) -> Splits:
        x, y = generate_correlated_tasks(
            self.total, rho=self.rho, dim=self.dim, num_sines=self.num_sines, seed=self.seed
        )
        rows = Records({"x": x, "label": y / y[: self.train_size].std(0)})
        return Splits(*map(rows.take, self.parts))

    def measure(self, *columns: Tensor) -> float:
        from sklearn.metrics import r2_score

        outputs, labels = columns
        return float(r2_score(labels.numpy(), outputs.numpy()))

    def per_item(self, *columns: Tensor) -> Tensor:
        """1 - (y - output)^2 / var(y) of each row, a mean over tasks."""
        outputs, labels = (column.double() for column in columns)
        return (1 - (labels - outputs).square() / labels.var(0, correction=0)).mean(1)

    def trivial_baseline(self, splits: Splits) -> float:
        """R2 of linear regression."""
        from sklearn.linear_model import LinearRegression

        train, test = splits.train.columns, splits.test.columns
        model = LinearRegression().fit(train["x"], train["label"])
        return float(model.score(test["x"], test["label"]))


@dataclass(frozen=True, kw_only=True)
class WhitePixel(Regression):
    """Row and column of the one white pixel of a picture (Liu et al. 2018, arXiv 1807.03247, section 4).

    quadrant: test on the lower right quarter and train on the others; otherwise each place is drawn into a part. The
    baseline answers the mean place of training.
    """

    name = "white_pixel"
    metric = "pixels off"
    better = "lower"
    baseline = "mean place"

    quadrant: bool = False

    @property
    def facts(self) -> dict[str, Any]:
        return {"input_dim": SIZE**2, "num_tasks": 2}

    def load(self) -> Splits:
        place = np.stack(np.divmod(np.arange(SIZE**2), SIZE), 1)
        x, y = np.eye(SIZE**2, dtype=np.float32), (2 * place / (SIZE - 1) - 1).astype(np.float32)
        rng = np.random.default_rng(self.seed)
        unseen = (place >= SIZE // 2).all(1)
        test = np.flatnonzero(unseen if self.quadrant else rng.random(SIZE**2) < 0.25)
        rest = rng.permutation(np.setdiff1d(np.arange(SIZE**2), test))
        rows = Records({"x": x, "label": y})
        return Splits(rows.take(rest[100:]), rows.take(rest[:100]), rows.take(test))

    def measure(self, *columns: Tensor) -> float:
        """Mean distance, in pixels."""
        return float(self.per_item(*columns).mean())

    def per_item(self, *columns: Tensor) -> Tensor:
        outputs, labels = columns
        return (outputs - labels).norm(dim=1) * (SIZE - 1) / 2

    def trivial_baseline(self, splits: Splits) -> float:
        labels = splits.test.labels
        return self.measure(splits.train.labels.mean(0).expand_as(labels), labels)


class PlaceReaderConfig(ModelConfig):
    """Four convolutions of stride 2 and a linear layer; coordinates: the first one is a CoordConv. input_dim pixels, num_tasks outputs."""

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
