"""Are gates for each task worth it as tasks grow unlike, and is weighing better than summing or joining?

regard arena questions.gates:QUESTION --rows docs/findings/rows/gates.jsonl

About 18 core-minutes: 306 runs of 3 s (a gate for each task 5 s, lines 1 s), and a sixth more where rates are widened.
"""

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.lab import Claim, Column, Entry, Question, Shell, above, near
from regard.lab.tasks import CorrelatedTasks
from regard.lab.train import TrainConfig
from regard.models import MMoEConfig
from regard.nn.dnn import Experts

SHELLS = (Shell(dim=3), Shell(dim=4))  # channels of an expert
MA, FEW = "Ma et al. 2018, KDD", "a survey article, of several production tasks and without numbers"
TRAIN = TrainConfig(
    steps=800, batch_size=128, weight_decay=0.0, eval_every=200, checkpoint_every=10_000, keep=1
)


class FusedConfig(MMoEConfig):
    """Experts whose outputs are summed or joined, or are none: a linear map, or its mean over tasks."""

    name = "fused"
    fusion: str = "sum"

    def build(self) -> Any:
        return Fused(self)


class Fused(nn.Module):
    def __init__(self, config: FusedConfig):
        super().__init__()
        width, n, K, self.fusion = (
            config.input_dim or 0,
            config.num_experts,
            config.num_tasks,
            config.fusion,
        )
        self.experts, towers = None, [[nn.Linear(width, 1)] for _ in range(K)]
        if self.fusion in ("sum", "join"):
            self.experts, hidden = Experts(width, n, config.expert_dims), config.tower_dim
            width = self.experts.out_dim * (n if self.fusion == "join" else 1)
            towers = [[nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, 1)] for _ in range(K)]  # type: ignore[list-item]
        self.towers = nn.ModuleList(nn.Sequential(*tower) for tower in towers)

    def forward(self, x: Tensor) -> Tensor:
        if self.experts is not None:
            found = self.experts(x)
            x = found.flatten(1) if self.fusion == "join" else found.sum(1)
        y = torch.cat([tower(x) for tower in self.towers], 1)
        return y.mean(1, keepdim=True).expand_as(y) if self.fusion == "mean" else y


# fmt: off
def _gated(gate: str, column: Column, experts: int = 8, more: int = 0) -> MMoEConfig:
    """more: units of each expert beyond the column's, which make up for gates that weigh less."""
    dims = (8 // experts * column.shell.dim + more,)
    return MMoEConfig(gate=gate, num_experts=experts, expert_dims=dims, **column.task.facts)  # type: ignore[arg-type]

def _fused(fusion: str, column: Column, more: int = 0) -> FusedConfig:
    return FusedConfig(fusion=fusion, expert_dims=(column.shell.dim + more,), **column.task.facts)


def _column(rho: float) -> Column:
    return Column(name=f"cosine {rho:g}", task=CorrelatedTasks(rho=rho, test_size=2000), train=TRAIN, shell=SHELLS[0])


QUESTION = Question(
    name="gates",
    about="What do gates gain over one gate, a shared bottom, a sum and a joining of experts, as two tasks grow unlike?",
    kind="comparison",
    entries=(
        Entry(title="a gate for each task", make=partial(_gated, "linear")),
        Entry(title="one gate", make=partial(_gated, "one", more=1)),
        Entry(title="learned query", make=partial(_gated, "attention_query", more=2)),
        Entry(title="shared bottom", make=partial(_gated, "none", experts=1, more=10)),
        Entry(title="experts summed", make=partial(_fused, "sum", more=2)),
        Entry(title="experts joined", make=partial(_fused, "join", more=1)),
        Entry(title="no mixing", make=partial(_fused, "linear")),
        Entry(title="the bag", make=partial(_fused, "mean")),
    ),
    vary=tuple(_column(rho) for rho in (0.0, 0.5, 1.0)),
    shells=SHELLS,
    rates=(2e-3, 5e-3, 12.5e-3),
    baseline="a gate for each task",
    factors=("size",),
    claims=(
        Claim(
            text="Gates for each task are better than a shared bottom where tasks differ.", source=MA, smallest=0.002,
            expected=(above("a gate for each task", "shared bottom", column="cosine 0"),),
        ),
        Claim(
            text="Gates for each task are better than one gate where tasks differ.", source=MA, smallest=0.002,
            expected=(above("a gate for each task", "one gate", column="cosine 0"),),
        ),
        Claim(
            text="Where tasks are the same, one gate is as good as several, within 0.005 of R2.", source=MA, smallest=0.002,
            expected=(near("one gate", "a gate for each task", within=0.005, column="cosine 1"),),
        ),
        *(
            Claim(text=f"A learned query that attends to the experts is better than MMoE's gate: cosine {rho}.", source=FEW, smallest=0.002, expected=(above("learned query", "a gate for each task", column=f"cosine {rho}"),)) for rho in ("0", "0.5", "1")
        ),
        Claim(
            text="Weighing experts is better than summing and than joining them.", source="a survey article", smallest=0.002,
            expected=tuple(above("a gate for each task", other, column="cosine 0") for other in ("experts summed", "experts joined")),
        ),
    ),
    limits=(
        "Normal inputs and sums of sines, as in the paper, which trains far longer, with 16 units an expert: with 3 or 4 experts are short of room, and some 0.03 of R2 is open.",
        "What has fewer gates has more units: sizes are within 2.5 % of each other; what is joined is 4 to 8 % smaller.",
        "No mixing is a linear map for each task, the bag the mean of the two: experts without gates are entries, and no lines.",
    ),
)
