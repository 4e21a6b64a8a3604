"""Benchmarks: the command for a machine with CUDA, as a dry run on the CPU, which goes on where it was; their arithmetic."""

import importlib
import json
import os
import random
import time
from pathlib import Path

from regard.lab import PACKAGES
from tests.command import python
from tests.packaging import ROOT

COMMAND = ROOT / "benchmarks" / "cuda.py"
CALLS = f"""
import runpy, sys
from pathlib import Path

sys.modules |= dict.fromkeys({(*PACKAGES, "transformers")})  # they cannot be imported

def run(part):
    sys.argv = ["cuda.py", "--out", out, "--part", part, "--device", "cpu", "--small", "--only", "linear", "--workers", "1"]
    try:
        runpy.run_path({str(COMMAND)!r}, run_name="__main__")
    except SystemExit as end:
        assert end.code == 0
    print("end", flush=True)

sys.path.insert(0, {str(COMMAND.parent)!r})
out = sys.argv[1]
run("laws")
run("speed")
path = Path(out, "speed.jsonl")
whole = path.read_text().splitlines(keepends=True)
Path(out, "before").write_text("".join(whole))
path.write_text("".join(whole[:-1]) + whole[-1][:20])  # killed while a row was written
run("speed")
"""


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_laws_and_speed_are_measured_and_a_second_call_goes_on(tmp_path):
    done = python("-c", CALLS, tmp_path, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    laws, speed, again = (part.strip().splitlines() for part in done.stdout.split("end\n")[:3])
    found = rows(tmp_path / "laws.jsonl")
    assert len(laws) == len(found) and {row["key"][0] for row in found} == {"kernel", "law"}
    assert {row["outcome"] for row in found} == {"passed"}
    streamed = [row for row in found if "streaming" in row.get("errors", ())]
    assert {row["key"][1] for row in streamed} == {"float32", "bfloat16"}

    before, after = rows(tmp_path / "before"), rows(tmp_path / "speed.jsonl")
    assert len(speed) == len(before) and len(again) == 1
    assert {row["key"][0] for row in before} == {"machine", "mixer", "graph", "core", "peers"}
    assert all(row["origin"]["small"] and row["ms"] for row in before)
    assert after[:-1] == before[:-1] and after[-1]["key"] == before[-1]["key"]


def ends(plan, key: tuple[str, ...]) -> dict:
    if key == ("2",):
        os._exit(1)
    return {"ms": float(key[0])}


def test_a_row_whose_process_dies_is_an_error_and_the_others_are_measured(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(COMMAND.parent)
    on_cuda = importlib.import_module("on_cuda")
    plan = on_cuda.Plan("cpu", small=True, only=())
    written = on_cuda.Rows(tmp_path / "rows.jsonl", plan)
    todo = [(ends, (str(n),)) for n in range(5)]
    on_cuda._side_by_side(plan, todo, written, time.monotonic() + 600, workers=2)
    found = {row["key"][0]: row.get("ms", "error") for row in rows(tmp_path / "rows.jsonl")}
    assert found == {"0": 0, "1": 1, "2": "error", "3": 3, "4": 4}


def test_its_name_hides_no_package_that_torch_imports(tmp_path):
    imported = "from cuda.bindings import driver; print(driver)"
    beside_it = python("-c", imported, PYTHONPATH=str(COMMAND.parent))
    assert "ModuleNotFoundError: No module named 'cuda" in beside_it.stderr
    (tmp_path / "cuda").mkdir()
    (tmp_path / "cuda" / "bindings.py").write_text("driver = 13\n")
    found = python("-c", imported, PYTHONPATH=f"{COMMAND.parent}{os.pathsep}{tmp_path}")
    assert found.stdout == "13\n", found.stderr


def test_the_page_has_a_half_for_cuda_once_it_was_run(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "docs")
    on_cuda = importlib.import_module("speed").on_cuda
    assert on_cuda(tmp_path).startswith("**Not run on CUDA.**")
    origin = {"device": "NVIDIA X", "torch": "2.11.0", "python": "3.12.3"}
    size = {"causal": True, "impl": "fla", "ms": 2.0, "baseline_ms": 6.0, "peak_bytes": 2**21}
    written = {
        "laws": [
            {"key": ["law", "map", "linear"], "outcome": "passed"},
            {"key": ["law", "long", "gau"], "error": "OutOfMemoryError"},
        ],
        "speed": [
            {"key": ["machine", "bfloat16"], "matrix_flops": 7.9e14, "copy_bytes": 4.3e12},
            {"key": ["mixer", "bfloat16", "train", "4096", "linear", "auto"], **size},
        ],
    }
    for name, found in written.items():
        lines = (json.dumps(row | {"origin": origin}) + "\n" for row in found)
        (tmp_path / f"{name}.jsonl").write_text("".join(lines))
    page = on_cuda(tmp_path)
    assert "1 did not end, 1 passed." in page
    assert "| linear causal | train | 4096 | bfloat16 | fla | 2 | 3 | 2 |" in page


def test_bounds_hold_the_median_as_often_as_they_say(monkeypatch):
    monkeypatch.syspath_prepend(COMMAND.parent)
    median_interval = importlib.import_module("measuring").median_interval
    drawn, held = random.Random(0), 0
    for _ in range(2000):
        low, high = median_interval([drawn.expovariate(1.0) for _ in range(15)], level=0.9)
        held += low <= 0.6931 <= high
    assert 0.9 <= held / 2000 <= 0.98  # order statistics cover at least as much as is wanted
    assert median_interval([3.0, 1.0, 2.0]) == (1.0, 3.0)  # few values give all of them
    assert median_interval([5.0]) == (5.0, 5.0)
