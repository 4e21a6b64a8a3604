"""Without its replacements the plain forms of the library keep the laws."""

import pytest

import regard
from tests.command import python

LAWS = ("reference", "streaming", "padding", "causality")
PARTS = 2
RUN = """
import sys
sys.modules["regard.fast"] = None  # it cannot be imported
import regard
from regard.functional.rows import replacements
from regard.testing import check_mixer
assert replacements() is None
for name in sys.argv[2:]:
    make = lambda: regard.build(name, dim=24, num_heads=3, max_len=64)
    kept = check_mixer(make, sys.argv[1].split(","))
    print(name, len(kept.verdicts))
"""


@pytest.mark.parametrize("part", range(PARTS))
def test_laws_hold(part):
    names = regard.MIXERS.names()[part::PARTS]
    done = python("-c", RUN, ",".join(LAWS), *names)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.split() == [word for name in names for word in (name, str(len(LAWS)))]
