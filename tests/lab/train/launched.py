"""`torchrun -m tests.lab.train.launched FOLDER` trains the tiny model, and a task by its command; each process writes there how it ended."""

import json
import os
import sys
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import replace
from io import StringIO
from pathlib import Path

import torch
from torch import nn

from regard import RegardError
from regard.cli import main
from regard.lab.train import fit
from tests.lab.train.tiny import CONFIG, Majority, TinyModel, tiny_model

STEPS = replace(CONFIG, steps=9, eval_every=9, checkpoint_every=9, log_every=3)
COMMAND = "train recall --train.steps 4 --train.batch-size 8 --train.log-every 2 --train.warmup 0"


def without_dropout() -> nn.Module:
    model = tiny_model()
    model.dropout = nn.Identity()
    return model.double()


class Poisoned(Majority):
    """The loss of the second process alone is not finite."""

    def loss(self, model, batch):
        return super().loss(model, batch) * (float("nan") if os.environ["RANK"] == "1" else 1)


class Unused(TinyModel):
    def __init__(self):
        super().__init__()
        self.unused = nn.Linear(2, 2)


def ended(task: Majority, run_dir: Path, model: nn.Module | None = None) -> dict:
    model = model or without_dropout()
    try:
        result = fit(model, task, STEPS, run_dir, progress=False)
    except RegardError as error:
        return {"error": str(error)}
    weights = {name: value.tolist() for name, value in model.state_dict().items()}
    return {"losses": result.losses, "tokens": result.tokens, "weights": weights}


def said(folder: Path, rate: str) -> dict:
    """Exit code and output of the command at a learning rate."""
    with redirect_stdout(StringIO()) as out, redirect_stderr(StringIO()) as err:
        line = f"{COMMAND} --folder {folder / rate} --train.lr {rate}"
        code = main(line.split())
    return {"code": code, "out": out.getvalue(), "err": err.getvalue()}


if __name__ == "__main__":
    torch.set_num_threads(1)
    folder = Path(sys.argv[1])
    found = {
        "plain": ended(Majority(), folder / "plain"),
        "poisoned": ended(Poisoned(), folder / "poisoned"),
        "taken": ended(Majority(), folder / "taken"),
        "unused": ended(Majority(), folder / "unused", Unused()),
        **{rate: said(folder, rate) for rate in ("0.01", "1e38")},
    }
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))
