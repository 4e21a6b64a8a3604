"""What a CUDA device would do, without one: the host never waits for it, and a pass is a bounded number of kernels."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import regard

ROOT = Path(__file__).parents[1]
WAITS = {
    ("compressed", "decode"): "the number of complete slots is the size of the store",
    (
        "sinkhorn",
        "decode",
    ): "rows of equal length are computed together, and the longest one sizes the store",
}
GROWS = {"softmax", "scored", "strided", "bigbird", "fixed_patterns", "gmlp", "gau", "mixture"} | {
    f"synthesizer_{kind}" for kind in ("dense", "random", "factorized_dense", "factorized_random")
}
"""Every key is kept, and the number of stored ones is a shape: such a step is no CUDA graph."""
MANY = {("efficient", "causal")}
"""Its running maximum is moved in a loop over chunks."""


@pytest.fixture(scope="module")
def counted() -> dict[str, dict]:
    command = [sys.executable, "-m", "tests.device_counts"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["mixer"] for row in rows] == regard.MIXERS.names()
    return {row.pop("mixer"): row for row in rows}


def test_the_host_waits_for_nothing(counted):
    waits = {
        (name, what): found["waits"]
        for name, passes in counted.items()
        for what, found in passes.items()
        if found["waits"]
    }
    assert waits.keys() == WAITS.keys(), waits


def test_a_decoding_step_keeps_the_shapes_of_its_state(counted):
    steps = {name: row["decode"] for name, row in counted.items() if "decode" in row}
    assert {name for name, step in steps.items() if not step["static"]} == GROWS
    assert all(step["launches"] <= 120 for step in steps.values()), steps


def test_a_forward_pass_is_a_bounded_number_of_kernels(counted):
    many = {
        (name, what)
        for name, passes in counted.items()
        for what, found in passes.items()
        if what in ("plain", "causal", "padded") and found["launches"] > 200
    }
    assert many == MANY
