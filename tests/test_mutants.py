"""Mutation testing itself: a mistake is killed by name, and an unchanged file is not."""

import ast
import json
import subprocess
import sys

from tests.mutants import KERNELS, ROOT, mutants, source

FILE = KERNELS / "linear.py"


def test_a_mutant_differs_from_its_file_in_one_place():
    found = mutants(FILE)
    assert len(found) > 20
    unchanged = ast.unparse(ast.parse(FILE.read_text())).splitlines()
    for mutant in found:
        changed = ast.unparse(source(mutant)).splitlines()
        assert changed != unchanged
        assert abs(len(changed) - len(unchanged)) <= 3


def test_mutants_of_linear_attention_are_killed_and_counted(tmp_path):
    out = tmp_path / "mutants.json"
    command = ["-m", "tests.mutants", "--count", "1", "--only", str(FILE), "--out", str(out)]
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, capture_output=True, text=True, check=True
    )
    told = json.loads(out.read_text())
    assert told["run"] == told["killed"] == 1
    assert "1 drawn and run, 1 killed" in done.stdout
    assert "law" in told["fates"][0]["killed_by"]
