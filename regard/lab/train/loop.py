"""The training loop, on Hugging Face Accelerate, which handles DDP, FSDP2 and mixed precision."""

import dataclasses
import math
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, Literal, cast

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import broadcast_object_list, gather_object, send_to_device, set_seed
from rich.progress import Progress
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
    set_model_state_dict,
    set_optimizer_state_dict,
)
from torch.nn.parallel import DistributedDataParallel

from regard.core import OptionError, RegardError, StoredDataError
from regard.lab.data.owners import owned
from regard.lab.tasks import Batch, Data, Splits, Task
from regard.lab.train import checkpoint, randomness
from regard.lab.train.batches import Batches, Shares, in_order, loaded, steps_for_tokens
from regard.lab.train.config import TrainConfig
from regard.lab.train.display import Bar, Log, bar_of, check_trackers, log_to
from regard.lab.train.launched import by_main, processes
from regard.lab.train.optimizer import make_optimizer, make_schedule
from regard.lab.train.terms import Terms
from regard.nn import after_step

_MAY_DIFFER = {"log_dir", "log_every", "checkpoint_every", "keep", "workers"}
"""Fields of the configuration that a resumed run may change."""


_ADDED = ("schedule", "disagreement_weight")
"""Fields that checkpoints of earlier versions do not name: their runs had today's defaults."""


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
    curve: list[tuple[int, float]]  # (step, validation metric)
    notes: dict[str, str]  # what the data depend on besides the options, such as a version
    losses: list[tuple[int, float]] = (  # (step, mean training loss in nats since the entry before)
        field(default_factory=list)
    )

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds


@dataclass
class TrainState:
    """How far a run has come."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curve: list[tuple[int, float]] = field(default_factory=list)
    losses: list[tuple[int, float]] = field(default_factory=list)
    best_step: int = 0
    best_value: float | None = None
    stale: int = 0  # evaluations since the best
    stopped: bool = False


def fit(
    model: nn.Module,
    task: Task,
    config: TrainConfig,
    run_dir: str | Path,
    *,
    splits: Splits | None = None,
    resume: bool = True,
    wait: bool = False,
    progress: bool | Progress = True,
    origin: Mapping[str, Any] | None = None,
    report_to: Sequence[str] = (),
) -> FitResult:
    """Trains `model` on the task's training split, keeps the weights with the best validation score, tests them.

    A killed run goes on from its newest checkpoint in `run_dir` and ends with the same weights as a run that was not
    killed (on CUDA as far as the kernels are deterministic); a finished run is only tested again.
    Seeds the global generators of torch, numpy and Python. `splits` saves loading the task again; `progress` may be a
    running rich Progress to draw in. `origin` holds JSON values that describe how the model was made, such as its seed:
    a folder whose run had others is refused. Where another process trains in the folder, `wait` waits for it to end.
    report_to: "wandb" or "mlflow", as they are set up on this machine; beside TensorBoard.

    Under a launcher (`torchrun`, `accelerate launch`; gloo on a CPU) each process trains on its share of every batch, and
    each evaluates everything; the first alone writes and prints. The loss that is kept is the one that is minimised: the
    mean of the shares' losses, of equal weight. Shares have equally many items, so that a mean over items is that of the
    whole batch; a mean over tokens is not where shares hold unlike numbers of them, and statistics of a batch (batch norm,
    Dice) are of a share. An error of a checkpoint or of a loss is raised in every process.

    Raises OptionError (the folder holds a different run, or another process trains in it; the batch does not fit; a launcher
    whose processes cannot reach each other), StoredDataError (a checkpoint is truncated or altered), PathError (the folder
    cannot be written, or the disk is full), DivergedError (a loss that is not finite). Committed checkpoints stay.
    """
    check_trackers(report_to)
    with (
        _accelerated(model, config.precision, report_to) as accelerator,
        _alone(run_dir, accelerator, wait),
    ):
        log_dir = _inside(Path(run_dir), config.log_dir)
        loaded = splits or task.load()
        trainer = _Trainer(accelerator, model, task, loaded, config, Path(run_dir), origin or {})
        trainer.start(resume)
        done, main = trainer.state.step, accelerator.is_main_process
        with (
            bar_of(progress if main else False, task.name, trainer.steps, done) as bar,
            log_to(log_dir if main else None, done) as log,
        ):
            told = dataclasses.asdict(config) | {
                "task": task.name,
                **(origin or {}).get("model", {}),
            }
            accelerator.init_trackers("regard", told)
            log.report = accelerator.log
            trainer.run(bar, log)
        result = trainer.result()
        accelerator.log({f"test/{result.metric}": result.value}, step=result.steps)
        return result


class _Trainer:
    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        task: Task,
        splits: Splits,
        config: TrainConfig,
        run_dir: Path,
        origin: Mapping[str, Any],
    ):
        self.accelerator, self.task, self.splits, self.config = accelerator, task, splits, config
        self.run_dir, self.root, self.origin = run_dir, run_dir / "checkpoints", origin
        self.batches = self._batches(splits.train)
        self.steps = config.steps or steps_for_tokens(
            config.tokens or 0, self.batches, splits.train
        )
        set_seed(config.seed, device_specific=accelerator.num_processes > 1)
        self.model, self.optimizer = accelerator.prepare(model, make_optimizer(model, config))
        self.schedule = make_schedule(
            self.optimizer.optimizer, config.warmup, self.steps, config.schedule
        )
        self.terms = Terms(accelerator.unwrap_model(self.model), config, splits)
        saves = -(-self.steps // config.checkpoint_every)
        if config.average is not None and config.average > saves:
            raise OptionError(
                f"average is {config.average}, and {self.steps} steps make {saves} checkpoints. Lower checkpoint_every"
            )
        self.state = TrainState()
        self.group = dist.group.WORLD if accelerator.num_processes > 1 else None  # of the shares

    def _batches(self, data: Data) -> Batches:
        batch_size, processes = self.config.batch_size, self.accelerator.num_processes
        size, bucket = len(data), self.config.bucket
        if batch_size > size:
            raise OptionError(
                f"batch_size is {batch_size}, and {self.task.name} has {size} training items. Choose a smaller batch_size."
            )
        if batch_size % processes:
            raise OptionError(
                f"batch_size ({batch_size}) must be a multiple of the {processes} processes"
            )
        lengths = None if bucket is None else data.lengths
        return Batches(size, batch_size, self.config.seed, bucket=bucket, lengths=lengths)

    def run(self, bar: Bar, log: Log) -> None:
        state, config = self.state, self.config
        batches = self._loaded()
        while state.step < self.steps and not state.stopped:
            tokens, seconds = state.tokens, state.seconds
            loss = self._train(batches, self._next_stop())
            rate = (state.tokens - tokens) / (state.seconds - seconds)
            state.losses.append((state.step, loss))
            log.add(
                state.step,
                {"train/loss": loss, "train/rate": float(self.schedule.get_last_lr()[0])},
            )
            last = state.step == self.steps
            improved = False
            if last or state.step % config.eval_every == 0:
                improved = self._evaluate()
                log.add(state.step, {f"valid/{self.task.metric}": state.curve[-1][1]})
            bar.show(state.step, loss, state.curve[-1][1] if state.curve else None, rate)
            if last or improved or state.stopped or state.step % config.checkpoint_every == 0:
                self._save()

    def _next_stop(self) -> int:
        config, step = self.config, self.state.step
        every = (config.eval_every, config.checkpoint_every, config.log_every)
        return min(self.steps, *(step - step % n + n for n in every))

    def _train(self, batches: Iterator[Batch], until: int) -> float:
        """Steps up to `until`, and the mean loss; the losses reach the host once, so that a GPU never waits."""
        began, first, tokens = time.perf_counter(), self.state.step, 0
        losses, norms = [], []
        limit = self.config.clip or math.inf
        self.model.train()
        for batch in islice(batches, until - first):
            tokens += self.task.count(batch)
            batch = send_to_device(batch, self.accelerator.device)
            with self.terms.watching() as calls:
                loss = self.task.loss(self.model, batch)
            loss = loss + self.terms.of(calls, batch)
            self.accelerator.backward(loss)
            self._check_used()
            norms.append(self.accelerator.clip_grad_norm_(self.model.parameters(), limit))
            losses.append(loss.detach())
            self.optimizer.step()
            self.schedule.step()
            self.optimizer.zero_grad()
            after_step(self.model, self.group)
        found = self.accelerator.reduce(torch.stack(losses).float(), "mean").cpu()  # over processes
        found_norms = torch.stack([_whole(norm) for norm in norms]).float().cpu()
        by_main(self.accelerator, lambda: self._check_finite(first, found, found_norms))
        self.state.tokens += int(
            self.accelerator.reduce(torch.tensor(tokens, device=self.accelerator.device), "sum")
        )
        self.state.seconds += time.perf_counter() - began
        self.state.step = until
        return found.mean().item()

    def _loaded(self) -> Iterator[Batch]:
        """This process's share of the batches that are still to be trained on."""
        rank, processes = self.accelerator.process_index, self.accelerator.num_processes
        shares = Shares(self.batches, self.state.step, self.steps, rank, processes)
        return loaded(self.splits.train, self.task.collate, shares, self.config.workers)

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
        for step, (loss, norm) in enumerate(
            zip(losses.tolist(), norms.tolist(), strict=True), first + 1
        ):
            if not math.isfinite(loss):
                raise DivergedError(
                    f"{self.task.name}: the loss of step {step} is {loss}. {self._instead()}"
                )
            if not math.isfinite(norm):
                raise DivergedError(
                    f"{self.task.name}: the gradient norm of step {step} is {norm}. {self._instead()}"
                )

    def _check_score(self, value: float) -> None:
        if not math.isfinite(value):
            raise DivergedError(
                f"{self.task.name}: the validation {self.task.metric} after step {self.state.step} is {value}. "
                f"{self._instead()}"
            )

    def _instead(self) -> str:
        return f"Try a lower rate than lr={self.config.lr}, or a longer warm-up; checkpoints before it are intact."

    def _score(self, data: Data) -> float:
        self.model.eval()
        batches = in_order(data, self.config.batch_size, self.task.collate)
        with torch.no_grad():
            value = self.task.score(
                self.model, (send_to_device(b, self.accelerator.device) for b in batches)
            )
        return broadcast_object_list([float(value)])[0]

    def _evaluate(self) -> bool:
        """Scores the validation split. True for a new best."""
        state = self.state
        value = self._score(self.splits.valid)
        by_main(self.accelerator, lambda: self._check_score(value))
        state.curve.append((state.step, value))
        if self._is_best(value):
            state.best_step, state.best_value, state.stale = state.step, value, 0
            return True
        state.stale += 1
        state.stopped = self.config.patience is not None and state.stale >= self.config.patience
        return False

    def _is_best(self, value: float) -> bool:
        best = self.state.best_value
        return best is None or (value > best if self.task.better == "higher" else value < best)

    def result(self) -> FitResult:
        state = self.state
        assert state.best_value is not None
        if self.config.average is not None:
            return self._averaged(self.config.average)
        if state.best_step != state.step:
            self._restore_weights(checkpoint.load(checkpoint.path_of(self.root, state.best_step)))
        return self._result(state.best_value, state.best_step)

    def _averaged(self, count: int) -> FitResult:
        """The result of the mean of the newest checkpoints' weights (arXiv 1706.03762, section 6.1)."""
        found = [checkpoint.load(path) for path in checkpoint.committed(self.root)[-count:]]
        newest = found[-1]
        mean = {
            name: torch.stack([one.model[name].double() for one in found]).mean(0).to(value.dtype)
            if value.is_floating_point()
            else value
            for name, value in newest.model.items()
        }
        self._restore_weights(newest._replace(model=mean))
        return self._result(self._score(self.splits.valid), self.state.step)

    def _result(self, valid_value: float, best_step: int) -> FitResult:
        state = self.state
        return FitResult(
            metric=self.task.metric,
            better=self.task.better,
            value=self._score(self.splits.test),
            valid_value=valid_value,
            best_step=best_step,
            steps=state.step,
            stopped_early=state.stopped,
            tokens=state.tokens,
            seconds=state.seconds,
            data_sha256=self.splits.sha256,
            curve=state.curve,
            notes=dict(self.splits.notes),
            losses=state.losses,
        )

    def start(self, resume: bool) -> None:
        """Goes on from the newest checkpoint, if there is one."""
        by_main(self.accelerator, lambda: checkpoint.clean(self.root))
        found = checkpoint.committed(self.root)
        if not found:
            return
        if not resume:
            raise OptionError(
                f"run_dir {self.run_dir} holds a run already: pass resume=True, or another folder"
            )
        stored = checkpoint.load(found[-1])
        try:
            self._restore(stored)
        except RegardError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise StoredDataError(
                f"{found[-1]} is no checkpoint of a training run ({error!r}). Remove it, or pass another folder."
            ) from error

    def _save(self) -> None:
        """Every process gives its part; the first one writes."""
        model = _weights(self.model, _WHOLE)
        optimizer = get_optimizer_state_dict(self.model, self.optimizer.optimizer, options=_WHOLE)
        random = gather_object([randomness.capture()])
        by_main(self.accelerator, lambda: self._write(model, optimizer, random))

    def _write(self, model: dict[str, Tensor], optimizer: dict[str, Any], random: list) -> None:
        state = self.state
        epoch, position = divmod(state.step, self.batches.per_epoch)
        stored = {
            "progress": dataclasses.asdict(state),
            "epoch": epoch,
            "position": position,  # batches of this epoch that are done
            "run": self._identity(),
            "groups": optimizer["param_groups"],
            "random": random,  # of each process
        }
        slots = {
            f"{name}/{slot}": value
            for name, held in optimizer["state"].items()
            for slot, value in held.items()
        }
        whole = checkpoint.Checkpoint(model, slots, stored)
        checkpoint.save(checkpoint.path_of(self.root, state.step), whole)
        checkpoint.prune(
            self.root, self.config.keep, checkpoint.path_of(self.root, state.best_step)
        )

    def _identity(self) -> dict[str, Any]:
        config = dataclasses.asdict(self.config) | {"betas": list(self.config.betas)}
        return {
            "config": {name: value for name, value in config.items() if name not in _MAY_DIFFER},
            "task": self.task.name,
            "data_sha256": self.splits.sha256,
            "processes": self.accelerator.num_processes,
            **self.origin,
        }

    def _restore(self, stored: checkpoint.Checkpoint) -> None:
        run = stored.state["run"]
        known = {field.name: field.default for field in dataclasses.fields(TrainConfig)}
        added = {name: known[name] for name in _ADDED if name not in run["config"]}
        run = run | {"config": run["config"] | added}
        _same("", run, self._identity(), self.run_dir)
        self._restore_weights(stored)
        held: dict[str, dict[str, Tensor]] = {}
        for key, value in stored.optimizer.items():
            name, slot = key.rsplit("/", 1)
            held.setdefault(name, {})[slot] = value
        optimizer = {"state": held, "param_groups": stored.state["groups"]}
        set_optimizer_state_dict(self.model, self.optimizer.optimizer, optimizer, options=_PRESENT)
        state = stored.state["progress"]
        lists = {name: list(map(tuple, state.get(name, ()))) for name in ("curve", "losses")}
        self.state = TrainState(**state | lists)
        self.schedule.last_epoch = self.state.step
        randomness.restore(stored.state["random"][self.accelerator.process_index])

    def _restore_weights(self, stored: checkpoint.Checkpoint) -> None:
        ours = {name: list(value.shape) for name, value in _weights(self.model).items()}
        _same(
            "model.",
            {name: list(value.shape) for name, value in stored.model.items()},
            ours,
            self.run_dir,
        )
        set_model_state_dict(self.model, dict(stored.model), options=_WHOLE)


_WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
_PRESENT = dataclasses.replace(_WHOLE, strict=False)  # a parameter without gradients has no slots


def _weights(model: nn.Module, options: StateDictOptions | None = None) -> dict[str, Tensor]:
    return cast(dict[str, Tensor], get_model_state_dict(model, options=options))


def _whole(norm: Tensor) -> Tensor:
    return norm.full_tensor() if hasattr(norm, "full_tensor") else norm


def _same(where: str, stored: dict[str, Any], ours: dict[str, Any], run_dir: Path) -> None:
    """Refuses to go on with a run that is not this one, and names the first difference."""
    for name in stored | ours:
        old, new = stored.get(name), ours.get(name)
        if isinstance(old, dict) and isinstance(new, dict):
            _same(f"{name}.", old, new, run_dir)
        elif old != new:
            raise OptionError(
                f"run_dir {run_dir} holds another run: {where}{name} is {old!r} there and {new!r} here. "
                "Pass the same, or another folder."
            )


def _inside(run_dir: Path, log_dir: str | None) -> Path | None:
    """The folder of logs. OptionError where a symbolic link leads out of the run's."""
    if log_dir is None:
        return None
    path = run_dir / log_dir
    if not path.resolve().is_relative_to(run_dir.resolve()):
        raise OptionError(
            f"log_dir ({log_dir!r}) leads out of the run's folder, to {path.resolve()}"
        )
    return path


@contextmanager
def _alone(run_dir: str | Path, accelerator: Accelerator, wait: bool) -> Iterator[None]:
    """Refuses a folder in which another run is under way, or waits. The first process of a run owns it for all."""
    with ExitStack() as held:
        by_main(accelerator, lambda: held.enter_context(owned(Path(run_dir, "run"), wait=wait)))
        yield


@contextmanager
def _accelerated(
    model: nn.Module, precision: str, report_to: Sequence[str]
) -> Iterator[Accelerator]:
    """Accelerate keeps one precision for the whole process, and wraps the model's forward: both are undone."""
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()
    count = processes()
    new = not PartialState._shared_state
    on_cpu = new and count > 1 and not torch.accelerator.is_available()
    accelerator = Accelerator(
        mixed_precision=precision, cpu=on_cpu, log_with=list(report_to) or None
    )
    if accelerator.num_processes != count:
        raise OptionError(
            f"fit cannot train in {count} processes: Accelerate knows of {accelerator.num_processes}, and each process would "
            "train alone, in one folder. Set ACCELERATE_USE_CPU=true for processes on a CPU, or start one process."
        )
    try:
        yield accelerator
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()
        accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        accelerator.free_memory()
