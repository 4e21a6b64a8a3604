"""Two processes of a launcher train as one, on a CPU: they keep the same losses, and end together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from regard import OptionError
from regard.lab import ask
from regard.lab.data.owners import owned
from regard.lab.questions import QUESTIONS
from tests.lab.train.launched import ended
from tests.lab.train.test_fit import train
from tests.lab.train.tiny import Majority

ROOT = Path(__file__).parents[3]


def launched(*command: str, processes=2, options=(), **environment) -> subprocess.CompletedProcess:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", *options]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""} | environment
    how = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    return subprocess.run([*torchrun, f"--nproc-per-node={processes}", "-m", *command], **how)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What the first and the second process wrote."""
    folder = tmp_path_factory.mktemp("launched")
    with owned(folder / "taken" / "run"):
        done = launched("tests.lab.train.launched", str(folder))
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_two_processes_train_as_one(both, tmp_path):
    first, second = (found["plain"] for found in both)
    assert first == second
    alone = ended(Majority(), tmp_path)
    assert first["tokens"] == alone["tokens"]
    assert [step for step, _ in first["losses"]] == [3, 6, 9]
    for name, value in (alone["weights"] | {"losses": alone["losses"]}).items():
        found = torch.tensor((first["weights"] | {"losses": first["losses"]})[name])
        torch.testing.assert_close(found, torch.tensor(value), rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("how", "error"),
    [
        ("poisoned", "majority: the loss of step 1 is nan."),
        ("taken", "another process trains here (process {process} on"),
        ("unused", "fit cannot train unused.weight in 2 processes: the loss does not"),
    ],
)
def test_what_ends_one_process_ends_both_with_one_error(both, how, error):
    first, second = (found[how]["error"] for found in both)
    assert first == second and error.format(process=os.getpid()) in first


@pytest.mark.parametrize(("rate", "code"), [("0.01", 0), ("1e38", 2)])
def test_the_command_speaks_once(both, rate, code):
    first, second = (found[rate] for found in both)
    assert first["code"] == second["code"] == code and second["out"] == ""
    assert first["out"].count("best_step") == (code == 0)
    errors = [line for line in first["err"].splitlines() if line.startswith("regard: ")]
    assert len(errors) == (code > 0) and "regard: " not in second["err"]
    assert all(line.startswith("regard: recall: the ") for line in errors)


def test_processes_that_cannot_reach_each_other_are_refused(tmp_path, monkeypatch):
    train(tmp_path / "alone")  # Accelerate has begun with one process
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OptionError, match="fit cannot train in 2 processes: Accelerate knows of 1"):
        train(tmp_path / "launched")
    with pytest.raises(OptionError, match=r"ask cannot run as 2 .* several times on one ledger"):
        ask(QUESTIONS["fingerprint"], tmp_path / "ledger.sqlite", tmp_path)
