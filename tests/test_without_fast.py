"""On a copy of the library without its replacements the plain forms keep the laws.

A mechanism for which none computes at the laws' sizes runs the same code in the copy: `tests/laws` asks it all laws, and the copy two.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import regard
from regard.functional.rows import recorded
from regard.testing import Subject
from tests.laws.catalogue import factory

LAWS = ("reference", "streaming", "padding", "causality", "second_derivative", "map")
FEW = ("batch", "streaming")
PARTS = 2
RUN = """
import sys
import regard
from regard.functional.rows import replacements
from regard.testing import check_mixer
assert replacements() is None
for name, laws in zip(sys.argv[1::2], sys.argv[2::2]):
    make = lambda: regard.build(name, dim=24, num_heads=3, max_len=64)
    kept = check_mixer(make, laws.split(","))
    print(name, len(kept.verdicts))
"""


def is_replaced(name: str) -> bool:
    """Whether a replacement computes anything in a request of the laws, forward, backward or in a stream."""
    subject = Subject(factory(name, {}))
    mixer, x = subject.make(), subject.x
    with recorded() as used:
        for request in subject.requests():
            request.results(mixer, x)
        if subject.can.streaming:
            mixer.extend(x, mixer.initial_state(len(x)))
    return bool(used - {"plain"})


@pytest.fixture(scope="module")
def without_fast(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("without_fast")
    ours = Path(regard.__file__).parent
    shutil.copytree(ours, folder / "regard", ignore=shutil.ignore_patterns("fast", "__pycache__"))
    return folder


@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold(without_fast, part):
    asked = {n: LAWS if is_replaced(n) else FEW for n in regard.MIXERS.names()[part::PARTS]}
    given = (word for name, laws in asked.items() for word in (name, ",".join(laws)))
    done = subprocess.run(
        [sys.executable, "-c", RUN, *given],
        capture_output=True,
        text=True,
        cwd=without_fast,
        env=os.environ | {"PYTHONPATH": str(without_fast)},
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == [f"{name} {len(laws)}" for name, laws in asked.items()]
    replaced = {"softmax", "local", "reformer", "efficient", "performer", "fnet"}
    assert all(laws == LAWS for name, laws in asked.items() if name in replaced)
