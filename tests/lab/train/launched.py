"""`python -m tests.lab.train.launched FOLDER` trains small models in processes of torch's own launcher, and writes how each ended.

Four train one that is sharded, until it is interrupted; two go on with it, one of which is killed once, and train more.
"""

import json
import os
import shutil
import signal
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from multiprocessing import set_forkserver_preload
from pathlib import Path
from unittest import mock

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin
from torch import nn
from torch.distributed.launcher.api import LaunchConfig, elastic_launch

from regard import RegardError
from regard.cli import main
from regard.lab.data.records import Examples, Ragged
from regard.lab.tasks import Splits, Task
from regard.lab.train import checkpoint, fit, launched
from regard.models import LanguageModelConfig
from tests.lab.train.tiny import CONFIG, Majority, TinyModel

STEPS = replace(CONFIG, steps=9, eval_every=3, checkpoint_every=3, log_every=1)
APART = replace(STEPS, disagreement="output")
MODEL = LanguageModelConfig(mixer="softmax", vocab_size=5, dim=8, num_heads=2, max_len=9)
COMMAND = "train recall --train.steps 4 --train.batch-size 8 --train.log-every 2 --train.warmup 0"


class Stopped(Exception):
    """The run has come to the step in which it is interrupted."""


class Words(Task):
    """Texts of unlike lengths: processes have unlike numbers of labels."""

    name, kind, vocab_size, max_len = "words", "language_model", 5, 9
    step = stopped = killed = 0

    def load(self):
        return Splits(*(self._items(size) for size in (100, 41, 39)))

    def _items(self, size):
        draw = torch.Generator().manual_seed(size)
        lengths = torch.randint(1, 10, (size,), generator=draw).tolist()
        rows = [torch.randint(1, 5, (length,), generator=draw) for length in lengths]
        return Examples(Ragged.of(rows), Ragged.of([row.roll(-1) for row in rows]))

    def count(self, batch):
        """Called once in each step."""
        vars(self)["step"] = self.step + 1
        if self.step == self.stopped:
            raise Stopped
        again = os.environ.get("TORCHELASTIC_RESTART_COUNT") != "0"
        if self.step == self.killed and os.environ["RANK"] == "1" and not again:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().count(batch)


def sharding(**given):
    """Accelerate shards on accelerators alone; torch's `fully_shard`, which it calls, does on a CPU as well."""
    accelerator = Accelerator(**given)
    accelerator.state.distributed_type = DistributedType.FSDP
    accelerator.state.fsdp_plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, auto_wrap_policy="size_based_wrap", min_num_params=200
    )
    return accelerator


def trained(folder, how="ddp", stopped=0, killed=0):
    """Losses, validation scores and the test's; None where it is interrupted.

    how: "ddp", "fsdp", or "own": a task with a loss of its own. stopped: the step in which it is interrupted; killed: the one in which the second process is
    killed the first time that it comes there; 0: never.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    model, task = (TinyModel(), Majority()) if how == "own" else (MODEL.build(), Words())
    model.double().dropout = nn.Identity()
    found = checkpoint.committed(folder / "checkpoints")
    step = int(found[-1].name.removeprefix("step-")) if found else 0
    vars(task).update(step=step, stopped=stopped, killed=killed)
    with mock.patch.object(launched, "Accelerator", sharding if how == "fsdp" else Accelerator):
        try:
            config = STEPS if how == "own" else APART
            result = fit(model, task, config, folder, progress=False)
        except Stopped:
            return None
    names = ("losses", "curve", "value", "tokens")
    return {name: getattr(result, name) for name in names}


class Poisoned(Majority):
    """The loss of the second process alone is not finite."""

    def loss(self, model, batch):
        return super().loss(model, batch) * (float("nan") if os.environ["RANK"] == "1" else 1)


class Unused(TinyModel):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2)


def error_of(folder, task, model):
    try:
        fit(model, task, STEPS, folder, progress=False)
    except RegardError as error:
        return str(error)


def said(folder, rate):
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        code = main(f"{COMMAND} --folder {folder / rate} --train.lr {rate}".split())
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


def ended(root):
    """Of each process, so that it is seen that all say the same, or one alone."""
    refused = {"poisoned": (Poisoned(), TinyModel()), "taken": (Majority(), TinyModel())}
    refused["unused"] = Majority(), Unused()
    found = {name: error_of(root / name, *given) for name, given in refused.items()}
    return found | {rate: said(root, rate) for rate in ("0.01", "1e38")}


def gone_on(root):
    how = {"ddp": ("ddp",), "fsdp": ("fsdp",), "own": ("own",), "grow": ("ddp", 0, 8)}
    return {name: trained(root / name, *given) for name, given in how.items()}


def launch(number, function, *arguments, restarts=0):
    config = LaunchConfig(
        1, 1, number, run_id="x", rdzv_backend="c10d", rdzv_endpoint="localhost:0", start_method="forkserver",
        max_restarts=restarts, monitor_interval=0.1,
    )  # fmt: skip
    return list(elastic_launch(config, function)(*arguments).values())


if __name__ == "__main__":
    from tests.lab.train import launched as module  # by the name that the other processes know

    root = Path(sys.argv[1])
    set_forkserver_preload([module.__name__, "torch.distributed.checkpoint.state_dict"])
    launch(4, module.trained, root / "grow", "fsdp", 4)
    shutil.copytree(root / "grow", root / "back")
    (root / "ended.json").write_text(json.dumps(launch(2, module.ended, root)))
    runs, _ = launch(2, module.gone_on, root, restarts=1)
    (root / "runs.json").write_text(json.dumps(runs))
