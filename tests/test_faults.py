"""The reduced form of every part of the fault suite; `python -m tests.faults` is the whole."""

import re

from regard.lab.train import checkpoint
from tests import faults
from tests.command import python


def test_nothing_goes_wrong():
    """In a process of its own with one thread, because it forks."""
    done = python("-m", "tests.faults", "--small", OMP_NUM_THREADS="1")
    assert done.returncode == 0, done.stdout + done.stderr
    found = re.split(r"^(\w+): .* s\n", done.stdout, flags=re.M)[1:]
    assert found[::2] == list(faults.PARTS)
    for part in found[1::2]:
        assert "  done " in part and "  held " in part and "  wrong" not in part


def test_a_flip_that_goes_unnoticed_and_a_raw_error_are_counted(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "_verify", lambda path, written: None)
        faults.flips(counts := faults.Counts(), tmp_path, 60)
    assert any("a flip went unnoticed" in what for what in counts.wrong)

    def careless(path):
        raise KeyError(path)

    monkeypatch.setattr(checkpoint, "_unsealed", careless)
    sample, counts = faults.SAMPLES["checkpoint"], faults.Counts()
    root = faults.copied(sample, tmp_path)
    faults._read_mutant(counts, sample, root, 10**6)
    assert any("raw KeyError" in name for name in counts.wrong)
