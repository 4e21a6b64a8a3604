"""Training for seconds: `fit` without its folder, its checkpoints, its processes and its display.

A run of 500 steps of 3 ms spends a quarter of its time on these (docs/log.md), and nobody goes on with a run of two seconds.
Here the rate rises linearly and falls linearly, rows are taken by index from two tensors, and a run ends when its task is solved.
"""

import math
from dataclasses import dataclass, replace
from statistics import fmean
from time import perf_counter
from typing import ClassVar

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Int
from torch import Tensor, nn

from regard.core import Declared, Mixer, OptionError, Rate
from regard.lab.data.records import IGNORED, Records
from regard.lab.tasks.task import Splits
from regard.lab.train.config import TrainConfig
from regard.lab.train.loop import DivergedError
from regard.lab.train.optimizer import make_optimizer, warmup_linear
from regard.lab.train.resume import Curve
from regard.lab.train.terms import Terms, has_own_loss
from regard.nn import after_step

LOOK = 50  # steps between points of the curve
SOLVED, OVER = 0.99, 10  # accuracy of so many training steps at which a run ends


class Short(Declared):
    """The budget of such a run."""

    steps: int
    batch_size: int = 32
    lr: float = 3e-3  # where a question has no rates
    warmup: Rate = 0.1  # share of the steps in which the rate rises
    tokens: ClassVar[None] = None

    def as_config(self) -> TrainConfig:
        """The same budget, optimiser and schedule for `fit`."""
        return TrainConfig(
            steps=self.steps, batch_size=self.batch_size, lr=self.lr, warmup=self.warmup, schedule="linear", weight_decay=0.0,
            betas=(0.9, 0.98), eval_every=LOOK,
        )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class ShortResult:
    valid_value: float  # accuracy: what a rate is chosen by
    value: float  # accuracy on the test split
    steps: int  # fewer than asked for where the task was solved
    seconds: float
    correct: list[float]  # accuracy of each test row
    curve: Curve  # (step, accuracy of the training steps since the last): rows never come twice


def short_fit(
    model: nn.Module,
    splits: Splits,
    budget: Short,
    *,
    lr: float,
    seed: int = 0,
    name: str = "the task",
    device: str = "cpu",
) -> ShortResult:
    """Trains model(tokens [B T]) -> logits [B T C] on rows of one length with a class or -100 at each token; no row comes twice.

    AdamW (.9, .98) without decay, the gradient's norm cut at 1. The last weights are the result. Seeds torch's generator. A mixer's
    `auxiliary_loss` is added where it has one: no other gradient reaches an index. Raises DivergedError where the loss is not finite.
    """
    began = perf_counter()
    for part in (splits.valid, splits.test):
        _rows(part)
    tokens, labels = (part.to(device) for part in splits.train.rows())
    steps, most = budget.steps, budget.steps * budget.batch_size
    if len(tokens) < most:
        raise OptionError(
            f"{name} has {len(tokens)} rows, and {steps} steps of {budget.batch_size} need {most}"
        )
    torch.manual_seed(seed)
    order = torch.randperm(len(tokens), device="cpu")[:most].view(steps, -1)
    model.to(device)
    taught = any(isinstance(m, Mixer) and has_own_loss(type(m)) for m in model.modules())
    config = replace(budget.as_config(), auxiliary=float(taught))
    optimizer = make_optimizer(model, config)
    terms = Terms(model, config, splits)
    accuracies, curve, rise = list[float](), [], max(1, round(budget.warmup * steps))
    model.train()
    for step, rows in enumerate(order, 1):
        for group in optimizer.param_groups:
            group["lr"] = lr * warmup_linear(step - 1, rise, steps)
        wanted = labels[rows] != IGNORED
        with terms.watching() as calls:
            logits, asked = model(tokens[rows])[wanted], labels[rows][wanted]
        loss = F.cross_entropy(logits, asked) + terms.of(calls, {})
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        after_step(model)
        if not math.isfinite(value := loss.item()):
            raise DivergedError(f"{name}: the loss of step {step} is {value} at lr={lr}")
        accuracies.append((logits.argmax(-1) == asked).float().mean().item())
        if step % LOOK == 0 or step == steps:
            curve.append((step, fmean(accuracies[-LOOK:])))
        if step > OVER and sum(accuracies[-OVER:]) >= SOLVED * OVER:
            break
    correct = row_accuracies(model, splits.test)
    return ShortResult(
        valid_value=float(row_accuracies(model, splits.valid).mean()),
        value=float(correct.mean()),
        steps=len(accuracies),
        seconds=perf_counter() - began,
        correct=[round(one, 4) for one in correct.tolist()],
        curve=curve,
    )


def row_accuracies(model: nn.Module, data: Records) -> Tensor:
    """[n] accuracy of each row, whose rows ask equally many tokens."""
    return answered(model, data)[1].float().mean(1)


@torch.no_grad()
def answered(model: nn.Module, data: Records) -> tuple[Int[Tensor, "n a"], Bool[Tensor, "n a"]]:
    """The tokens that are asked, and whether each is answered rightly, of rows that ask equally many."""
    model.eval()
    tokens, labels = _rows(data)
    asked, device = labels != IGNORED, next(model.parameters()).device
    found = torch.cat([model(part.to(device)).argmax(-1).cpu() for part in tokens.split(128)])
    right, of = (found == labels)[asked], tokens[asked]
    return of.view(len(tokens), -1), right.view(len(tokens), -1)


def _rows(data: Records) -> tuple[Int[Tensor, "n T"], Int[Tensor, "n T"]]:
    tokens, labels = data.rows()
    if len((labels != IGNORED).sum(1).unique()) != 1:
        raise OptionError(
            "a Short run is judged on rows that ask equally many tokens: give the column a TrainConfig"
        )
    return tokens, labels
