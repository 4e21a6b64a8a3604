"""Regression on vectors: two tasks of chosen similarity, and the place of a white pixel."""

from typing import Annotated, Any

import numpy as np
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import LARGEST, Range
from regard.lab.data.records import Records
from regard.lab.tasks.table import Tabular
from regard.lab.tasks.task import Batch, Drawn, Loss, Splits
from regard.models import ModelConfig
from regard.nn import CoordConv2d

SIZE = 32  # pixels
Several = Annotated[int, Range(2, LARGEST, "at least 2: labels are divided by their deviation")]


class Regression(Tabular):
    """Rows {x [input_dim], label [K]}; the loss is the mean squared error."""

    kind = "vectors"

    def answer(self, model: nn.Module, batch: Batch) -> Float[Tensor, "B K"]:
        return model(batch["fields"]["x"]).float()

    def loss(self, model: nn.Module, batch: Batch) -> Loss:
        outputs, labels = self.columns(model, batch)
        return (outputs - labels).square().mean()


class CorrelatedTasks(Drawn, Regression):
    """Two regression tasks of chosen similarity: the synthetic data of MMoE (Ma et al. 2018, KDD, section 3.2).

        w_1 = u_1,   w_2 = rho u_1 + sqrt(1 - rho^2) u_2,   u_1 and u_2 unit vectors at right angles
        x ~ N(0, I),   y_k = w_k . x + sum_i sin(alpha_i w_k . x + beta_i) + e,   e ~ N(0, 0.01)
        R2 = 1 - sum (y - output)^2 / sum (y - mean y)^2, mean over tasks

    The paper does not give alpha and beta: here alpha_i in [0, 4) and beta_i in [0, 2 pi) are drawn from the seed before anything else,
    the same for both tasks and every rho; more rows of a seed begin with the same ones. The lower `rho`, the less the tasks share, and
    the more separate gates are worth. Labels are divided by the training part's deviation, which R2 does not see. The baseline is
    linear regression.

    rho: cosine of the two tasks' weight vectors.
    dim: numbers of an input vector.
    """

    name = "correlated_tasks"
    metric = "R2"
    baseline = "linear regression"

    rho: Annotated[float, Range(-1, 1, "between -1 and 1")] = 0.5
    dim: Annotated[int, Range(2, LARGEST, "at least 2: two weight vectors at right angles")] = 100
    num_sines: int = 4  # terms of the curve that makes labels of products
    train_size: Several = 20000
    valid_size: Several = 2000
    test_size: Several = 4000

    @property
    def facts(self) -> dict[str, Any]:
        return {"input_dim": self.dim, "num_tasks": 2}

    def draw(self) -> tuple[np.ndarray, np.ndarray]:
        """x [n dim] and y [n 2] of all parts."""
        rng = np.random.default_rng(self.seed)
        dim = self.dim
        alpha = 4 * rng.random(self.num_sines)
        beta = 2 * np.pi * rng.random(self.num_sines)
        u, _ = np.linalg.qr(rng.standard_normal((dim, 2)))
        drawn = rng.standard_normal((self.total, dim + 2))
        x = drawn[:, :dim]
        z = x @ (u @ np.array([[1, self.rho], [0, np.sqrt(1 - self.rho**2)]]))
        return x, z + np.sin(alpha * z[..., None] + beta).sum(-1) + 0.1 * drawn[:, dim:]

    def load(self) -> Splits:
        x, y = self.draw()
        rows = Records({"x": x, "label": y / y[: self.train_size].std(0)})
        return Splits(*map(rows.take, self.parts))

    def per_item(self, *columns: Tensor) -> Tensor:
        """1 - (y - output)^2 / var(y) of each row, a mean over tasks."""
        outputs, labels = (column.double() for column in columns)
        return (1 - (labels - outputs).square() / labels.var(0, correction=0)).mean(1)

    def trivial_baseline(self, splits: Splits) -> float:
        """R2 of linear regression."""
        from sklearn.linear_model import LinearRegression

        train = splits.train.columns
        test = splits.test.columns
        model = LinearRegression().fit(train["x"], train["label"])
        return float(model.score(test["x"], test["label"]))


class WhitePixel(Regression):
    """Row and column of the one white pixel of a picture (Liu et al. 2018, arXiv 1807.03247, section 4).

    quadrant: test on the lower right quarter and train on the others; otherwise each place is drawn into a part. The
    baseline answers the mean place of training.
    """

    name = "white_pixel"
    metric = "pixels off"
    better = "lower"
    baseline = "mean place"

    facts = {"input_dim": SIZE**2, "num_tasks": 2}

    quadrant: bool = False

    def load(self) -> Splits:
        place = np.stack(np.divmod(np.arange(SIZE**2), SIZE), 1)
        x = np.eye(SIZE**2, dtype=np.float32)
        y = (2 * place / (SIZE - 1) - 1).astype(np.float32)
        rng = np.random.default_rng(self.seed)
        unseen = (place >= SIZE // 2).all(1)
        test = np.flatnonzero(unseen if self.quadrant else rng.random(SIZE**2) < 0.25)
        rest = rng.permutation(np.setdiff1d(np.arange(SIZE**2), test))
        return Splits(*map(Records({"x": x, "label": y}).take, (rest[100:], rest[:100], test)))

    def per_item(self, *columns: Tensor) -> Tensor:
        """Distances, in pixels."""
        outputs, labels = columns
        return (outputs - labels).norm(dim=1) * (SIZE - 1) / 2

    def trivial_baseline(self, splits: Splits) -> float:
        labels = splits.test.labels
        return self.measure(splits.train.labels.mean(0).expand_as(labels), labels)


class PlaceReaderConfig(ModelConfig):
    """Four convolutions of stride 2 and a linear layer; coordinates: the first one is a CoordConv. input_dim pixels, num_tasks outputs."""

    name = "place_reader"
    kinds = ("vectors",)
    input_dim: int = SIZE**2
    num_tasks: int = 2
    channels: int = 16
    coordinates: bool = False

    def build(self) -> nn.Module:
        C = self.channels
        first = CoordConv2d if self.coordinates else nn.Conv2d
        layers: list[nn.Module] = [nn.Unflatten(1, (1, SIZE, SIZE))]
        for conv, channels in ((first, 1), *[(nn.Conv2d, C)] * 3):
            layers += [conv(channels, C, 3, stride=2, padding=1), nn.ReLU()]
        side = SIZE // 16
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(C * side**2, self.num_tasks))
