"""A run at 1, 2 and 4 processes is one run: losses and scores, whole or sharded weights, interruptions, a killed process."""

import json
import shutil

import pytest
import torch

from tests.lab.train.elastic import trained
from tests.lab.train.test_launched import launched

KILLED = {
    "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"
}  # torch issue 135712: restarts find old addresses


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """One process; two, with whole and sharded weights; four that shard until step 4, then one alone, or two of which one is killed."""
    folder = tmp_path_factory.mktemp("elastic")
    module, root = "tests.lab.train.elastic", str(folder)
    done = launched(module, root, "grow,fsdp,4", processes=4)
    assert done.returncode == 0, done.stderr
    shutil.copytree(folder / "grow", folder / "back")
    commands = ["ddp,ddp", "fsdp,fsdp", "grow,ddp,0,8"]
    done = launched(module, root, *commands, options=["--max-restarts=1"], **KILLED)
    assert done.returncode == 0, done.stderr
    assert "exitcode: -9" in done.stderr
    found = json.loads((folder / "found.json").read_text())
    return found | {"one": trained(folder / "one"), "back": trained(folder / "back")}


@pytest.mark.parametrize("name", ["ddp", "fsdp", "grow", "back"])
def test_losses_and_scores_are_those_of_one_process(runs, name):
    for what in ("losses", "curve", "value"):
        found, expected = (torch.tensor(runs[run][what]).double() for run in (name, "one"))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-6)
    assert len(runs[name]["losses"]) == 9
