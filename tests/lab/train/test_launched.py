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


def launched(*command: str) -> subprocess.CompletedProcess:
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    how = {"cwd": ROOT, "env": environment, "capture_output": True, "text": True}
    return subprocess.run([*torchrun, "-m", *command], **how)


@pytest.fixture(scope="module")
def both(tmp_path_factory):
    """What the first and the second process said."""
    folder = tmp_path_factory.mktemp("launched")
    with owned(folder / "taken" / "run"):
        done = launched("tests.lab.train.launched", str(folder))
    assert done.returncode == 0, done.stderr
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_two_processes_train_as_one(both, tmp_path):
    first, second = (said["plain"] for said in both)
    assert first == second
    alone = ended(Majority(), tmp_path)
    assert first["tokens"] == alone["tokens"]
    assert [step for step, _ in first["losses"]] == [3, 6, 9]
    for name, value in (alone["weights"] | {"losses": alone["losses"]}).items():
        found = torch.tensor((first["weights"] | {"losses": first["losses"]})[name])
        torch.testing.assert_close(found, torch.tensor(value), rtol=0, atol=1e-6)


def test_what_is_not_finite_in_one_process_ends_both(both):
    first, second = (said["poisoned"]["error"] for said in both)
    assert first == second
    assert first.startswith("majority: the loss of step 1 is nan.")


def test_a_folder_that_is_taken_is_refused_by_both(both):
    first, second = (said["taken"]["error"] for said in both)
    assert first == second
    assert f"another process trains here (process {os.getpid()} on" in first


def test_a_parameter_that_the_loss_does_not_use_is_refused_by_name(both):
    first, second = (said["unused"]["error"] for said in both)
    assert first == second
    assert first.startswith("fit cannot train unused.weight in 2 processes: the loss does not")


@pytest.mark.parametrize(("rate", "code"), [("0.01", 0), ("1e38", 1)])
def test_the_command_speaks_once(tmp_path, rate, code):
    options = {"folder": tmp_path, "train.steps": 4, "train.batch-size": 8, "train.lr": rate}
    options |= {"train.log-every": 2, "train.warmup": 0}
    given = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    done = launched("regard", "train", "recall", *given)
    assert done.returncode == code, done.stderr
    assert done.stdout.count("best_step") == 1 - code
    said = [line for line in done.stderr.splitlines() if line.startswith("regard: ")]
    assert len(said) == code
    assert all(line.startswith("regard: recall: the ") for line in said)


def test_processes_that_cannot_reach_each_other_are_refused(tmp_path, monkeypatch):
    train(tmp_path / "alone")  # Accelerate has begun with one process
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OptionError, match="fit cannot train in 2 processes: Accelerate knows of 1"):
        train(tmp_path / "launched")
    refused = pytest.raises(OptionError, match="ask cannot run as 2 processes of a launcher")
    with refused:
        ask(QUESTIONS["fingerprint"], tmp_path / "ledger.sqlite", tmp_path)
