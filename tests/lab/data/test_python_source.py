"""Readers of Python source."""

import pytest

from regard.core import OptionError
from regard.lab.tasks.language_models import read_modules

LIBRARY = {
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


def test_modules_are_read_once_and_tests_and_what_is_generated_left_out(tmp_path):
    with pytest.raises(OptionError, match=f"no Python source under {tmp_path}"):
        read_modules(tmp_path)
    for name, text in LIBRARY.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    assert read_modules(tmp_path) == {"a.py": b"x = 1\n", "pack/b.py": b"y = 2\n"}
