"""A checkpoint's content, and going on from one: the same run alone, to the last bit."""

import json
import random
from base64 import b64decode, b64encode
from dataclasses import asdict, dataclass, field, fields, replace
from importlib import import_module
from pathlib import Path

import numpy as np
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object, set_seed
from torch import Tensor, nn
from torch.optim import Optimizer

from regard.core import OptionError, RegardError, StoredDataError, tuples
from regard.lab.train import checkpoint
from regard.lab.train.config import TrainConfig
from regard.lab.train.launched import by_main

Curve = list[tuple[int, float]]  # (step, value)
MAY_DIFFER = {"log_dir", "log_every", "checkpoint_every", "keep", "workers"}
"""Fields of the configuration that a resumed run may change."""


@dataclass
class TrainState:
    """The progress of a run."""

    step: int = 0
    tokens: int = 0
    seconds: float = 0.0
    curve: Curve = field(default_factory=list)
    losses: Curve = field(default_factory=list)
    best_step: int = 0
    best_value: float | None = None
    stale: int = 0  # evaluations since the best
    stopped: bool = False


def _name(one: object) -> str:
    return getattr(one, "__qualname__", str(one))


class Keeper:
    """Writes the checkpoints of one run, and goes on from them. facts: JSON values that must be equal for that."""

    def __init__(
        self,
        accelerator: Accelerator,
        model: nn.Module,
        optimizer: Optimizer,
        config: TrainConfig,
        run_dir: Path,
        facts: checkpoint.State,
    ):
        self.accelerator = accelerator
        self.model = model
        self.optimizer = optimizer
        self.run_dir = run_dir
        self.root = run_dir / "checkpoints"
        self.keep = config.keep
        told = {name: value for name, value in asdict(config).items() if name not in MAY_DIFFER}
        self.identity = json.loads(json.dumps({"config": told, **facts}, default=_name))
        # takes seconds to import, which a process that trains nothing does without
        self.api = import_module("torch.distributed.checkpoint.state_dict")
        self.whole = self.api.StateDictOptions(full_state_dict=True, cpu_offload=True)

    def save(self, state: TrainState) -> None:
        """Every process gives its part; the first one writes."""
        model = self.api.get_model_state_dict(self.model, options=self.whole)
        optimizer = self.api.get_optimizer_state_dict(
            self.model, self.optimizer, options=self.whole
        )
        generators = gather_object([capture()])  # of each process

        def write() -> None:
            stored = {
                "progress": asdict(state),
                "run": self.identity,
                "groups": optimizer["param_groups"],
                "random": generators,
            }
            slots = {
                f"{name}/{slot}": value
                for name, held in optimizer["state"].items()
                for slot, value in held.items()
            }
            path = checkpoint.path_of(self.root, state.step)
            checkpoint.save(path, checkpoint.Checkpoint(model, slots, stored))
            checkpoint.prune(self.root, self.keep, checkpoint.path_of(self.root, state.best_step))

        by_main(self.accelerator, write)

    def restored(self) -> TrainState:
        """Goes on from the newest checkpoint, if there is one."""
        by_main(self.accelerator, lambda: checkpoint.clean(self.root))
        found = checkpoint.committed(self.root)
        if not found:
            return TrainState()
        stored = checkpoint.load(found[-1])
        try:
            return self._restored(stored)
        except RegardError:
            raise
        except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as error:
            raise StoredDataError(
                f"{found[-1]} is no checkpoint of a training run ({error!r}). Remove it, or pass another folder."
            ) from error

    def _restored(self, stored: checkpoint.Checkpoint) -> TrainState:
        run = stored.state["run"]
        ours = self.identity
        usual = {one.name: one.default for one in fields(TrainConfig) if one.name in ours["config"]}
        # an earlier version does not name newer fields: its runs had today's defaults
        run.pop("processes", None)
        self._require_same("", run | {"config": usual | run["config"]}, ours)
        self.take(stored.model)
        held = dict[str, dict[str, Tensor]]()
        for key, value in stored.optimizer.items():
            name, slot = key.rsplit("/", 1)
            held.setdefault(name, {})[slot] = value
        optimizer = {"state": held, "param_groups": stored.state["groups"]}
        # a parameter without gradients has no slots
        present = replace(self.whole, strict=False)
        self.api.set_optimizer_state_dict(self.model, self.optimizer, optimizer, options=present)
        state = stored.state["progress"]
        lists = {name: list(map(tuple, state.get(name, ()))) for name in ("curve", "losses")}
        generators = stored.state["random"]
        processes = self.accelerator.num_processes
        if len(generators) == processes:
            restore(generators[self.accelerator.process_index])
        else:  # other draws, as each process has its own
            set_seed(self.identity["config"]["seed"] + state["step"], device_specific=processes > 1)
        return TrainState(**state | lists)

    def take(self, weights: dict[str, Tensor]) -> None:
        """Weights of a checkpoint into the model."""
        sizes = (
            {name: list(value.shape) for name, value in held.items()}
            for held in (weights, self.api.get_model_state_dict(self.model))
        )
        self._require_same("model.", *sizes)
        self.api.set_model_state_dict(self.model, dict(weights), options=self.whole)

    def _require_same(self, where: str, stored: checkpoint.State, ours: checkpoint.State) -> None:
        """Refuses to go on with a run that is not this one, and names the first difference."""
        for name in stored | ours:
            old = stored.get(name)
            new = ours.get(name)
            if isinstance(old, dict) and isinstance(new, dict):
                self._require_same(f"{name}.", old, new)
            elif old != new:
                raise OptionError(
                    f"run_dir {self.run_dir} holds another run: {where}{name} is {old!r} there and {new!r} here. Pass the same, or another folder."
                )


def capture() -> checkpoint.State:
    """The state of every random generator that training may draw from, as plain JSON values."""
    numbers = np.random.get_state(legacy=False)
    return {
        "torch": _encode(torch.get_rng_state()),
        "cuda": list(map(_encode, torch.cuda.get_rng_state_all())),
        "python": random.getstate(),
        "numpy": json.loads(json.dumps(numbers, default=np.ndarray.tolist)),
    }


def restore(state: checkpoint.State) -> None:
    torch.set_rng_state(_decode(state["torch"]))
    if len(state["cuda"]) == torch.cuda.device_count():
        torch.cuda.set_rng_state_all(map(_decode, state["cuda"]))
    random.setstate(tuples(state["python"]))
    np.random.set_state(state["numpy"])


def _encode(state: Tensor) -> str:
    return b64encode(state.numpy().tobytes()).decode()


def _decode(text: str) -> Tensor:
    return torch.frombuffer(bytearray(b64decode(text)), dtype=torch.uint8)
