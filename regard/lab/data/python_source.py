"""The source text of the running Python's standard library, and its docstrings."""

import os
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from regard.core import OptionError

LEFT_OUT = frozenset(
    {
        "__pycache__",
        "site-packages",  # not the library: what was installed beside it
        "dist-packages",
        "test",  # tests, of the library and of its packages
        "tests",
        "idle_test",
        "idlelib",  # an application
        "turtledemo",
        "encodings",  # generated tables, much like one another
        "pydoc_data",  # documentation text
    }
)
"""Names of folders that are not read, at any depth."""


_GENERATED = ("_sysconfigdata", "config-")  # describe one build of the interpreter


def stdlib_root() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def read_modules(root: Path) -> dict[str, bytes]:
    """ "json/decoder.py" -> its bytes, in the order of the names; empty files and repetitions are left out."""
    modules: dict[str, bytes] = {}
    seen: set[bytes] = set()
    for name, path in sorted(_source_files(root)):
        text = path.read_bytes()
        digest = sha256(text).digest()
        if text.strip() and digest not in seen:
            seen.add(digest)
            modules[name] = text
    if not modules:
        raise OptionError(
            f"stdlib_bytes: no Python source under {root}. "
            "This interpreter comes without it; use one that has its library as .py files."
        )
    return modules


def _source_files(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name for name in folders if name not in LEFT_OUT and not name.startswith(_GENERATED)
        ]
        for name in files:
            if name.endswith(".py") and not name.startswith(_GENERATED):
                path = Path(folder, name)
                yield path.relative_to(root).as_posix(), path
