"""What a CUDA device would do, without one: the host never waits for it, and a pass is a bounded number of kernels."""

import json

import pytest

import regard
from tests.command import python
from tests.device_counts import GROWS, LONG
from tests.packaging import ROOT


@pytest.fixture(scope="module")
def counted() -> dict[str, dict]:
    # Every shape is met in four passes or more: what tests/conftest.py turns off is worth it here.
    cached = {"TORCH_FAKE_TENSOR_DISPATCH_CACHE": "1"}
    done = python("-m", "tests.device_counts", cwd=ROOT, **cached)
    assert done.returncode == 0, done.stderr[-2000:]
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["mixer"] for row in rows] == regard.MIXERS.names()
    return {row.pop("mixer"): row for row in rows}


def test_the_host_waits_for_nothing(counted):
    passes = {(name, what): found for name, row in counted.items() for what, found in row.items()}
    assert not {which: found["waits"] for which, found in passes.items() if found["waits"]}


def test_a_decoding_step_keeps_the_shapes_of_its_state(counted):
    """With reserved room: so it can be captured in a CUDA graph."""
    steps = {name: row["decode"] for name, row in counted.items() if "decode" in row}
    assert not [name for name, step in steps.items() if not step["static"]]
    most = {"native_sparse": 180}  # three branches, of which one chooses
    assert all(step["launches"] <= most.get(name, 120) for name, step in steps.items()), steps


MANY = {"bigbird": 256, "nystrom": 230, "native_sparse": 210}
"""Kernels of a forward pass, where they are more than 200: a window, first, last and random blocks without FlexAttention, and rows of global tokens, whose fused attention makes a mask of its own; six steps of an inverse; three branches."""


def test_a_forward_pass_is_a_bounded_number_of_kernels(counted):
    for name, row in counted.items():
        found = {what: one["launches"] for what, one in row.items() if what.startswith("forward, ")}
        assert max(found.values()) <= MANY.get(name, 200), (name, found)


def test_patterns_launch_no_more_around_flex_attention_than_softmax_around_its_kernel(counted):
    """Forward: one launch is the attention, the others are projections. FlexAttention's backward cannot run without CUDA.

    The default head_mix has three patterns; heads of one pattern are taken out, asked by themselves and put back.
    """
    flex = {name: row["flex"]["launches"] for name, row in counted.items() if "flex" in row}
    assert {"local", "strided", "global", "head_mix", "longformer", "bigbird"} <= flex.keys()
    apart = {"head_mix": 10}  # two attentions more, and the heads taken out and put back
    softmax = counted["softmax"]["fused"]["launches"]
    assert all(n <= softmax + apart.get(name, 0) for name, n in flex.items()), flex


def test_longer_sequences_launch_no_more_kernels(counted):
    """No loop over blocks; Sinkhorn launches a few less where its blocks end with the sequence."""
    flat = {name: row for name, row in counted.items() if name not in GROWS}
    assert flat.keys() | GROWS == set(regard.MIXERS.names())
    for name, row in flat.items():
        more = 20 if name == "nystrom" else 0  # six steps of an inverse
        for what, most in (("forward", 170 + more), ("backward", 350 + more)):
            short, long = (row[f"{what} {length}"]["launches"] for length in LONG)
            assert long <= short <= most, (name, what, short, long)
