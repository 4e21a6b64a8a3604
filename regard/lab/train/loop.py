"""The training loop, on Hugging Face Accelerate, which handles DDP, FSDP2 and mixed precision."""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from numbers import Real
from os.path import realpath
from pathlib import Path
from time import perf_counter
from typing import Literal

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list, gather_object, send_to_device, set_seed
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from regard.core import OptionError, Options, RegardError, ShapeError, checked, shown
from regard.lab.data.records import IGNORED, Records
from regard.lab.data.source import own_code
from regard.lab.tasks import Batch, Splits, Task
from regard.lab.train import checkpoint
from regard.lab.train.batches import Batches, in_order, loaded, packing, steps_for_tokens
from regard.lab.train.config import TrainConfig
from regard.lab.train.display import bar_of, check_trackers, log_to
from regard.lab.train.launched import accelerated, alone, by_main
from regard.lab.train.optimizer import make_optimizer, make_schedule
from regard.lab.train.resume import Curve, Keeper
from regard.lab.train.terms import Terms
from regard.nn import after_step


class DivergedError(RegardError):
    """The loss, the gradient or the validation score stopped being a finite number."""


@dataclass(frozen=True, kw_only=True)
class FitResult:
    """Result of a run. The model that was passed to `fit` holds the best weights."""

    metric: str
    better: Literal["higher", "lower"]
    value: float  # of the test split, at the best validation checkpoint
    valid_value: float  # of the validation split, at the same checkpoint
    best_step: int  # optimiser steps before that checkpoint
    steps: int  # of the optimiser, in all
    stopped_early: bool
    tokens: int  # seen in training, padding left out
    seconds: float  # training alone, without evaluation and checkpoints
    data_sha256: str
    curve: Curve  # (step, validation metric)
    notes: dict[str, str]  # what the data depend on besides the options, such as a version
    losses: Curve = field(default_factory=list)  # (step, mean loss in nats since the one before)


@checked
def fit(
    model: nn.Module,
    task: Task,
    config: TrainConfig,
    run_dir: str | Path,
    *,
    splits: Splits | None = None,
    wait: bool = False,
    progress: bool = True,
    origin: Options | None = None,
    report_to: Sequence[str] = (),
) -> FitResult:
    """Trains `model` on the task's training split, keeps the weights with the best validation score, tests them.

    A killed run goes on from its newest checkpoint in `run_dir` and ends with the same weights as a run that was not
    killed (on CUDA as far as the kernels are deterministic); a finished run is only tested again.
    Seeds the global generators of torch, numpy and Python. `splits` saves loading the task again. `origin` holds JSON values that describe how the model was made, such as its seed:
    a folder whose run had others is refused. Where another process trains in the folder, `wait` waits for it to end.
    report_to: "wandb" or "mlflow", as they are set up on this machine; beside TensorBoard.

    Under a launcher (`torchrun`, `accelerate launch`; gloo on a CPU) each process trains on its share of every batch and
    answers its share of the items that are scored; the first alone writes and prints. Losses and scores are those of one
    process: a share weighs by its labels where the task has `Task.loss`. A loss of its own is the mean over shares, which
    have equally many items; a `score` of its own is computed by each process over everything. Statistics of a batch (batch norm,
    Dice) are of a share. A run goes on with any number of processes. An error of a checkpoint or of a loss is raised in every
    process. FSDP2 is Accelerate's (`accelerate launch --use_fsdp --fsdp_version 2`), which needs accelerators: `model` stays
    sharded, and `load` reads it whole.

    Raises OptionError (the folder holds a different run, or another process trains in it; the batch does not fit; a launcher
    whose processes cannot reach each other), StoredDataError (a checkpoint is truncated or altered), PathError (the folder
    cannot be written, or the disk is full), DivergedError (a loss that is not finite). Committed checkpoints stay.
    """
    check_trackers(report_to)
    folder = Path(run_dir)
    origin = origin or {}
    _check_model(model, origin)
    with (
        accelerated(model, config.precision, report_to) as accelerator,
        alone(folder, accelerator, wait),
    ):
        log_dir = _inside(folder, config.log_dir)
        splits = splits or Splits.of(task)
        trainer = _Trainer(accelerator, model, task, splits, config, folder, origin)
        main = accelerator.is_main_process
        if main and progress and (columns := task.read_as(splits)):
            print(f"Read as: {columns}.")
        done = trainer.state.step
        with (
            bar_of(main and progress, task.name, trainer.steps, done) as show,
            log_to(log_dir if main else None, done) as log,
        ):
            told = asdict(config) | {"task": task.name, **origin.get("model", {})}
            accelerator.init_trackers("regard", told)
            trainer.run(show, log)
        result = trainer.result()
        accelerator.log({f"test/{result.metric}": result.value}, step=result.steps)
        return result


def _check_model(model: nn.Module, origin: Options) -> None:
    learned = [p for p in model.parameters() if p.requires_grad]
    if not learned or learned[0].is_meta:
        raise OptionError(
            "fit needs a model with parameters that learn, and not on the meta device"
        )
    try:
        json.dumps(origin)
    except (TypeError, ValueError) as error:
        raise OptionError(f"fit: origin must hold JSON values: {error}") from None


class _Trainer:
    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        task: Task,
        splits: Splits,
        config: TrainConfig,
        run_dir: Path,
        origin: Options,
    ):
        self.accelerator = accelerator
        self.task = task
        self.splits = splits
        self.config = config
        processes = accelerator.num_processes
        size = len(splits.train)
        if config.batch_size > size:
            raise OptionError(
                f"batch_size is {config.batch_size}, and {task.name} has {size} training items. Choose a smaller batch_size."
            )
        if config.batch_size % processes:
            raise OptionError(
                f"batch_size ({config.batch_size}) must be a multiple of the {processes} processes"
            )
        if config.batch_l2 and processes > 1:
            raise OptionError("batch_l2 is of the ids of a whole batch: train in one process")
        self.batches = Batches(splits.train.lengths, config.batch_size, config.seed, config.bucket)
        self.steps = config.steps or steps_for_tokens(config.tokens or 0, self.batches)
        self.collate = packing(task, model, splits.train) if config.packing else task.collate
        set_seed(config.seed, device_specific=processes > 1)
        self.model, self.optimizer = accelerator.prepare(model, make_optimizer(model, config))
        optimizer = self.optimizer.optimizer
        self.schedule = make_schedule(optimizer, config.warmup, self.steps, config.schedule)
        self.terms = Terms(accelerator.unwrap_model(self.model), config, splits)
        self.group = dist.group.WORLD if processes > 1 else None  # of the shares
        chosen = {k: v for k, v in asdict(task).items() if not isinstance(v, Path | None)}
        facts = {"task": task.name, "options": chosen, "data_sha256": splits.sha256, **origin}
        if not type(task).__module__.startswith("regard."):
            facts["code"] = own_code(type(task))
        self.keeper = Keeper(accelerator, self.model, optimizer, config, run_dir, facts)
        self.state = self.keeper.restored()
        self.schedule.last_epoch = self.state.step

    def run(self, show: Callable[..., None], log: Callable[..., None]) -> None:
        state = self.state
        config = self.config
        rank = self.accelerator.process_index
        processes = self.accelerator.num_processes
        shares = (
            self.batches[step][rank::processes] for step in range(state.step, self.steps)
        )  # this process's part of the batches that are still to be trained on
        batches = loaded(self.splits.train, self.collate, shares, config.workers)
        while state.step < self.steps and not state.stopped:
            tokens = state.tokens
            seconds = state.seconds
            every = (config.eval_every, config.checkpoint_every, config.log_every)
            until = min(self.steps, *(state.step - state.step % n + n for n in every))
            loss = self._train(batches, until)
            speed = (state.tokens - tokens) / (state.seconds - seconds)
            state.losses.append((state.step, loss))
            values = {"train/loss": loss, "train/rate": float(self.schedule.get_last_lr()[0])}
            last = state.step == self.steps
            improved = False
            if last or state.step % config.eval_every == 0:
                improved = self._evaluate()
                values[f"valid/{self.task.metric}"] = state.curve[-1][1]
            for told in (log, self.accelerator.log):
                told(values, step=state.step)
            show(state.step, loss, state.curve[-1][1] if state.curve else None, speed)
            if last or improved or state.stopped or state.step % config.checkpoint_every == 0:
                self.keeper.save(state)

    def _train(self, batches: Iterator[Batch], until: int) -> float:
        """Steps up to `until`, and the mean loss; the losses reach the host once, so that a GPU never waits."""
        began = perf_counter()
        first = self.state.step
        tokens = 0
        losses = []
        norms = []
        limit = self.config.clip or math.inf
        self.model.train()
        for batch in islice(batches, until - first):
            count = self.task.count(batch)
            tokens += count
            batch = send_to_device(batch, self.accelerator.device)
            with self.terms.watching() as calls:
                loss = self._loss(batch)
            loss = loss * self._weight(batch) + self.terms.of(calls, batch) * self._part(count)
            self.accelerator.backward(loss)
            self._check_used()
            norms.append(self.accelerator.clip_grad_norm_(self.model.parameters(), limit))
            losses.append(loss.detach())
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            after_step(self.model, self.group)
        found = self.accelerator.reduce(torch.stack(losses).float(), "mean").cpu()  # over processes
        whole = [norm.full_tensor() if hasattr(norm, "full_tensor") else norm for norm in norms]
        found_norms = torch.stack(whole).float().cpu()
        by_main(self.accelerator, lambda: self._check_finite(first, found, found_norms))
        self.state.tokens += int(
            self.accelerator.reduce(torch.tensor(tokens, device=self.accelerator.device), "sum")
        )
        self.state.seconds += perf_counter() - began
        self.state.step = until
        return found.mean().item()

    def _weight(self, batch: Batch) -> Tensor | float:
        """Weight of this process's loss in the mean over processes: its part of the labels, where the loss is their mean."""
        if type(self.task).loss is not Task.loss:
            return 1.0
        return self._part((batch["labels"] != IGNORED).sum())

    def _part(self, own: Tensor | int) -> Tensor | float:
        """This share's part of what all shares have, times their number; 1 where there is one."""
        if self.group is None:
            return 1.0
        own = torch.as_tensor(own, device=self.accelerator.device)
        return own * self.accelerator.num_processes / self.accelerator.reduce(own, "sum")

    def _check_used(self) -> None:
        if not isinstance(self.model, DistributedDataParallel):
            return
        for name, parameter in self.model.module.named_parameters():
            if parameter.requires_grad and parameter.grad is None:
                raise OptionError(
                    f"fit cannot train {name} in {self.accelerator.num_processes} processes: the loss does not depend on it, "
                    "and all wait for its gradient. Freeze it (requires_grad=False), or start one process."
                )

    def _check_finite(self, first: int, losses: Tensor, norms: Tensor) -> None:
        pairs = zip(losses.tolist(), norms.tolist(), strict=True)
        for step, (loss, norm) in enumerate(pairs, first + 1):
            self._require_finite(f"loss of step {step}", loss)
            self._require_finite(f"gradient norm of step {step}", norm)

    def _require_finite(self, what: str, value: float) -> None:
        if not math.isfinite(value):
            raise DivergedError(
                f"{self.task.name}: the {what} is {value}. Try a lower rate than lr={self.config.lr}, or a longer warm-up; "
                "checkpoints before it are intact."
            )

    def _loss(self, batch: Batch) -> Tensor:
        """Raises ShapeError where the task gives another thing, or knows a class that the model does not."""
        try:
            loss = self.task.loss(self.model, batch)
        except IndexError as error:
            raise ShapeError(f"the loss of {self.task.name}: {error}") from error
        if not isinstance(loss, Tensor) or loss.dim() or not loss.requires_grad:
            raise ShapeError(
                f"the loss of {self.task.name} must be a number with a gradient, got {shown(loss)}"
            )
        return loss

    def _score(self, data: Records) -> float:
        """The metric. Each process answers its share of the items, or all where the task scores in a way of its own."""
        self.model.eval()
        task = self.task
        size = self.config.batch_size
        device = self.accelerator.device
        rank = self.accelerator.process_index
        processes = self.accelerator.num_processes
        with torch.no_grad():
            if type(task).score is not Task.score:
                batches = in_order(data, size, task.collate)
                value = task.score(self.model, (send_to_device(b, device) for b in batches))
            else:
                share = in_order(data, -(-size // processes), task.collate, rank, processes)
                own = task.every(self.model, (send_to_device(b, device) for b in share))
                columns = zip(*gather_object([own]), strict=True)
                value = task.measure(
                    *(torch.stack(c, 1).flatten(0, 1)[: len(data)] for c in columns)
                )
        if not isinstance(value, Real) and not (isinstance(value, Tensor) and value.numel() == 1):
            raise ShapeError(f"the score of {task.name} must be a number, got {shown(value)}")
        return broadcast_object_list([float(value)])[0]

    def _evaluate(self) -> bool:
        """Scores the validation split. True for a new best."""
        state = self.state
        value = self._score(self.splits.valid)
        what = f"validation {self.task.metric} after step {state.step}"
        by_main(self.accelerator, lambda: self._require_finite(what, value))
        state.curve.append((state.step, value))
        sign = 1 if self.task.better == "higher" else -1
        if state.best_value is None or sign * value > sign * state.best_value:
            state.best_step = state.step
            state.best_value = value
            state.stale = 0
            return True
        state.stale += 1
        state.stopped = self.config.patience is not None and state.stale >= self.config.patience
        return False

    def result(self) -> FitResult:
        """Result of the best weights, which the model holds afterwards."""
        state = self.state
        assert state.best_value is not None
        if state.best_step != state.step:
            best = checkpoint.path_of(self.keeper.root, state.best_step)
            self.keeper.take(checkpoint.load(best).model)
        return FitResult(
            metric=self.task.metric,
            better=self.task.better,
            value=self._score(self.splits.test),
            valid_value=state.best_value,
            best_step=state.best_step,
            steps=state.step,
            stopped_early=state.stopped,
            tokens=state.tokens,
            seconds=state.seconds,
            data_sha256=self.splits.sha256,
            curve=state.curve,
            notes=dict(self.splits.notes),
            losses=state.losses,
        )


def _inside(run_dir: Path, log_dir: str | None) -> Path | None:
    """The folder of logs. OptionError where it, or a symbolic link in its place, leads out of the run's."""
    if log_dir is None:
        return None
    path = run_dir / log_dir
    at = Path(realpath(path))
    if not at.is_relative_to(realpath(run_dir)):
        raise OptionError(
            f"log_dir ({log_dir!r}) leads out of the run's folder, to {at}. Name one inside, or None"
        )
    return path
