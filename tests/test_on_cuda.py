"""The command for a machine with CUDA, as a dry run on the CPU: it writes rows, and goes on where it was."""

import json
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


def run(out: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    sizes = ("--device", "cpu", "--small", "--only", "fnet", "--workers", "1")
    command = [sys.executable, str(BENCHMARKS / "on_cuda.py"), "--out", str(out), *sizes]
    return subprocess.run([*command, *arguments], capture_output=True, text=True, check=False)


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_laws_and_speed_are_measured_and_a_second_call_goes_on(tmp_path):
    assert run(tmp_path, "--part", "laws").returncode == 0
    laws = rows(tmp_path / "laws.jsonl")
    outcomes = {tuple(row["key"]): row["outcome"] for row in laws}
    assert outcomes.pop(("law", "streaming", "fnet")) == "does not apply"
    assert {key[0] for key in outcomes} == {"kernel"}
    assert set(outcomes.values()) == {"passed", "does not apply"}

    assert run(tmp_path, "--part", "speed").returncode == 0
    path = tmp_path / "speed.jsonl"
    speed = rows(path)
    assert {row["key"][0] for row in speed} == {"machine", "mixer", "core", "peers"}
    assert all(row["origin"]["small"] and row["ms"] for row in speed)

    whole = path.read_text().splitlines(keepends=True)
    path.write_text("".join(whole[:-1]) + whole[-1][:20])  # killed while a row was written
    again = run(tmp_path, "--part", "speed")
    assert again.returncode == 0 and len(again.stdout.splitlines()) == 1
    assert rows(path)[:-1] == speed[:-1] and rows(path)[-1]["key"] == speed[-1]["key"]


def test_no_program_beside_it_hides_a_package_that_torch_imports():
    """torch imports a package named cuda, and the folder of a program that is run comes first in its path."""
    assert not (BENCHMARKS / "cuda.py").exists()
