"""Readers of Python source."""

import pytest

from regard.core import OptionError
from regard.lab.tasks.language_models import read_modules


@pytest.fixture
def library(tmp_path):
    files = {
        "a.py": "x = 1\n",
        "copy_of_a.py": "x = 1\n",
        "empty.py": "\n",
        "pack/b.py": "y = 2\n",
        "pack/tests/c.py": "z = 3\n",
        "site-packages/d.py": "w = 4\n",
        "_sysconfigdata__linux.py": "v = 5\n",
        "config-3.11/e.py": "u = 6\n",
        "notes.txt": "no source",
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def test_what_is_read_and_what_is_left_out(library):
    assert read_modules(library) == {"a.py": b"x = 1\n", "pack/b.py": b"y = 2\n"}


def test_a_folder_without_source_is_named(tmp_path):
    with pytest.raises(OptionError, match=f"no Python source under {tmp_path}"):
        read_modules(tmp_path)
