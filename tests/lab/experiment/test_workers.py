"""Claims on a machine that is being timed, and in a folder that cannot be used; `tests.faults` kills workers."""

import pytest

from regard.core import PathError
from regard.lab.experiment.workers import Claims


def test_timing_keeps_other_work_from_the_machine(tmp_path):
    one, two = Claims(tmp_path / "l"), Claims(tmp_path / "l")
    with one.claim("timing", alone=True), two.claim("a") as mine:
        assert not mine
    one.machine = "elsewhere"
    with one.claim("timing", alone=True), two.claim("a") as mine:
        assert mine


def test_what_cannot_be_used_is_named(tmp_path):
    (tmp_path / ".l.locks").write_text("no folder")
    with pytest.raises(PathError, match=r"\.l\.locks.* cannot be written"):
        with Claims(tmp_path / "l").claim("a"):
            pass
