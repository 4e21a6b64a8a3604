"""A run at 1, 2 and 4 processes of a launcher is one run: losses and scores, whole or sharded weights, a killed process, errors."""

import json
import os
from pathlib import Path

import pytest
import torch

from regard import OptionError
from regard.lab import ask
from regard.lab.data.owners import owned
from regard.lab.questions import QUESTIONS
from tests.command import python
from tests.lab.train.launched import trained
from tests.lab.train.test_fit import train

ROOT = Path(__file__).parents[3]
ERRORS = {
    "poisoned": "majority: the loss of step 1 is nan.",
    "taken": f"another process trains here (process {os.getpid()} on",
    "unused": "fit cannot train unused.weight in 2 processes: the loss does not",
}


def test_processes_train_as_one_and_end_together(tmp_path):
    environment = {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    # torch issue 135712: restarts find old addresses
    environment |= {"TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    with owned(tmp_path / "taken" / "run"):
        done = python("-m", "tests.lab.train.launched", tmp_path, cwd=ROOT, **environment)
    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr
    runs = json.loads((tmp_path / "runs.json").read_text())
    # after four processes: two, of which one is killed, and one alone
    runs["back"] = trained(tmp_path / "back")
    alone = {how: trained(tmp_path / f"one, {how}", how) for how in ("ddp", "own")}
    for name, found in runs.items():
        assert len(found["losses"]) == 9
        for what in ("losses", "curve", "value", "tokens"):
            one = alone["own" if name == "own" else "ddp"]
            ours, expected = (torch.tensor(run[what]).double() for run in (found, one))
            torch.testing.assert_close(ours, expected, rtol=0, atol=1e-6, msg=name)

    first, second = json.loads((tmp_path / "ended.json").read_text())
    for how, error in ERRORS.items():
        assert first[how] == second[how] and error in first[how]
    for rate, code in (("0.01", 0), ("1e38", 2)):  # the command speaks once
        assert first[rate]["code"] == second[rate]["code"] == code and second[rate]["out"] == ""
        assert first[rate]["out"].count("best_step") == (code == 0)
        errors = [e for e in first[rate]["err"].splitlines() if e.startswith("regard: ")]
        assert len(errors) == (code > 0) and "regard: " not in second[rate]["err"]
        assert all(line.startswith("regard: recall: the ") for line in errors)


def test_processes_that_cannot_reach_each_other_are_refused(tmp_path, monkeypatch):
    train(tmp_path / "alone")  # Accelerate has begun with one process
    monkeypatch.setenv("LOCAL_RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(OptionError, match="fit cannot train in 2 processes: Accelerate knows of 1"):
        train(tmp_path / "launched")
    with pytest.raises(OptionError, match=r"ask cannot run as 2 .* several times on one ledger"):
        ask(QUESTIONS["fingerprint"], tmp_path / "ledger.sqlite", tmp_path)
