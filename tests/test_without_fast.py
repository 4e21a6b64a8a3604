"""On a copy of the library without its replacements the plain forms keep the laws."""

import shutil
from pathlib import Path

import pytest

import regard
from tests.command import python

LAWS = ("reference", "streaming", "padding", "causality", "second_derivative", "map")
PARTS = 2
RUN = """
import sys
import regard
from regard.functional.rows import replacements
from regard.testing import check_mixer
assert replacements() is None
for name in sys.argv[2:]:
    make = lambda: regard.build(name, dim=24, num_heads=3, max_len=64)
    kept = check_mixer(make, sys.argv[1].split(","))
    print(name, len(kept.verdicts))
"""


@pytest.fixture(scope="module")
def without_fast(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("without_fast")
    ours = Path(regard.__file__).parent
    shutil.copytree(ours, folder / "regard", ignore=shutil.ignore_patterns("fast", "__pycache__"))
    return folder


@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold(without_fast, part):
    names = regard.MIXERS.names()[part::PARTS]
    given = "-c", RUN, ",".join(LAWS), *names
    done = python(*given, cwd=without_fast, PYTHONPATH=str(without_fast))
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [word for name in names for word in (name, str(len(LAWS)))]
