"""Files are replaced whole, and nothing but plain ones; `tests.faults` fills the disk and kills the writer."""

import os

import pytest

from regard.core import PathError
from regard.core.files import whole


def test_nothing_but_a_plain_file_is_replaced(tmp_path):
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "device").symlink_to("/dev/full")
    os.mkfifo(tmp_path / "pipe")
    modes = {path: path.lstat().st_mode for path in tmp_path.iterdir()}
    for name in ("link", "device", "pipe"):
        said = f"{name} cannot be written: it is no plain file"
        with pytest.raises(PathError, match=said), whole(tmp_path / name) as partial:
            partial.write_text("new")
    assert modes == {path: path.lstat().st_mode for path in tmp_path.iterdir()}
    assert (tmp_path / "there").read_text() == "old"
