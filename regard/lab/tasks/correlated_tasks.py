"""Two regression tasks as much alike as one says: the synthetic data of MMoE (Ma et al. 2018, KDD, section 3.2).

    loss = mean over tasks of (y_k - output_k)^2,   R2 = 1 - sum (y - output)^2 / sum (y - mean y)^2, mean over tasks

The lower `rho`, the less the tasks share, and the more separate gates are worth. Labels are divided by the training
part's deviation, which R2 does not see. The baseline is linear regression.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor, nn

from regard.core import OptionError
from regard.lab.data.correlated_tasks import check_correlated_tasks, generate_correlated_tasks
from regard.lab.data.rows import Rows, gathered
from regard.lab.tasks.drawn import Drawn
from regard.lab.tasks.evaluation import evaluation
from regard.lab.tasks.task import Batch, Splits


@dataclass(frozen=True, kw_only=True)
class CorrelatedTasks(Drawn):
    """rho: cosine of the two tasks' weight vectors."""

    name = "correlated_tasks"
    kind = "vectors"
    metric = "R2"
    better = "higher"
    baseline = "linear regression"

    rho: float = 0.5
    dim: int = 100
    num_sines: int = 4
    valid_size: int = 2000
    test_size: int = 4000

    def __post_init__(self) -> None:
        super().__post_init__()
        check_correlated_tasks(self.rho, self.dim, self.num_sines)

    @property
    def facts(self) -> dict[str, Any]:
        return {"input_dim": self.dim, "num_tasks": 2}

    @property
    def max_len(self) -> int:
        return 1

    def load(self) -> Splits:
        x, y = generate_correlated_tasks(
            self.total, rho=self.rho, dim=self.dim, num_sines=self.num_sines, seed=self.seed
        )
        y = y / y[: self.train_size].std(0)
        rows = Rows({"x": x, "label": y})
        return Splits(*map(rows.take, self.parts))

    def loss(self, model: nn.Module, batch: Batch) -> Float[Tensor, ""]:
        return (model(batch["x"]).float() - batch["label"]).square().mean()

    def score(self, model: nn.Module, batches: Iterable[Batch]) -> float:
        from sklearn.metrics import r2_score

        found, wanted = [], []
        with evaluation(model):
            for batch in batches:
                found.append(model(batch["x"]).float().cpu())
                wanted.append(batch["label"].cpu())
        if not found:
            raise OptionError(f"{self.name}: score needs at least one batch, got none")
        return float(r2_score(torch.cat(wanted).numpy(), torch.cat(found).numpy()))

    def trivial_baseline(self, splits: Splits | None = None) -> float:
        """R2 of linear regression."""
        from sklearn.linear_model import LinearRegression

        splits = splits or self.load()
        train, test = splits.train, splits.test
        assert isinstance(train, Rows) and isinstance(test, Rows)
        model = LinearRegression().fit(train.columns["x"], train.columns["label"])
        return float(model.score(test.columns["x"], test.columns["label"]))

    def collate(self, items: Sequence[Mapping[str, Tensor]]) -> Batch:
        """{x [B dim], label [B 2]}"""
        return dict(gathered(items))

    def count(self, batch: Batch) -> int:
        """Rows in a batch."""
        return len(batch["x"])
