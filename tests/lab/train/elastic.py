"""`torchrun -m tests.lab.train.elastic FOLDER RUN...` trains a small language model; the first process writes how each run went.

RUN is NAME,HOW,STOPPED,KILLED: its folder in FOLDER; "ddp" or "fsdp"; the step in which it is interrupted, and the one in which the
second process is killed the first time that it comes there (0: never).
"""

import json
import os
import signal
import sys
from dataclasses import replace
from pathlib import Path
from unittest import mock

import torch
from accelerate import Accelerator
from accelerate.utils import DistributedType, FullyShardedDataParallelPlugin

from regard.lab.tasks.task import Task
from regard.lab.train import checkpoint, fit, launched
from regard.models import LanguageModelConfig
from tests.lab.train.tiny import CONFIG, Items, Splits

STEPS = replace(CONFIG, steps=9, eval_every=3, checkpoint_every=3, log_every=1)
MODEL = LanguageModelConfig(mixer="softmax", vocab_size=5, dim=8, num_heads=2, max_len=9)


class Stopped(Exception):
    """The run has come to the step in which it is interrupted."""


class Words(Task):
    """Texts of unlike lengths: processes have unlike numbers of labels."""

    name, kind, vocab_size = "words", "language_model", 5
    step = stopped = killed = 0

    def load(self):
        return Splits(*(self._items(size) for size in (100, 41, 39)))

    def _items(self, size):
        draw = torch.Generator().manual_seed(size)
        lengths = torch.randint(1, 10, (size,), generator=draw).tolist()
        rows = [torch.randint(1, 5, (length,), generator=draw) for length in lengths]
        return Items({"tokens": row, "label": row.roll(-1)} for row in rows)

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
    """Losses, validation scores and the test's; None where it is interrupted."""
    torch.manual_seed(0)
    model, task = MODEL.build().double(), Words()
    found = checkpoint.committed(Path(folder) / "checkpoints")
    step = int(found[-1].name.removeprefix("step-")) if found else 0
    vars(task).update(step=step, stopped=int(stopped), killed=int(killed))
    with mock.patch.object(launched, "Accelerator", sharding if how == "fsdp" else Accelerator):
        try:
            result = fit(model, task, STEPS, folder, progress=False)
        except Stopped:
            return None
    return {"losses": result.losses, "curve": result.curve, "value": result.value}


if __name__ == "__main__":
    torch.set_num_threads(1)
    root = Path(sys.argv[1])
    runs = (run.split(",") for run in sys.argv[2:])
    found = {name: trained(root / name, *how) for name, *how in runs}
    if os.environ["RANK"] == "0":
        (root / "found.json").write_text(json.dumps(found))
