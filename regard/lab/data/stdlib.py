"""The source text of the Python standard library that runs us, as a corpus that is everywhere at hand."""

import os
import sysconfig
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Literal

from regard.core import OptionError

Split = Literal["train", "valid", "test"]

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
    for name, path in sorted(_sources(root)):
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


def split_of(name: str) -> Split:
    """One file in ten is in "test", one in ten in "valid": decided by its name alone."""
    share = int.from_bytes(sha256(name.encode()).digest()[:8], "big") % 10
    return "test" if share == 0 else "valid" if share == 1 else "train"


def _sources(root: Path) -> Iterator[tuple[str, Path]]:
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name for name in folders if name not in LEFT_OUT and not name.startswith(_GENERATED)
        ]
        for name in files:
            if name.endswith(".py") and not name.startswith(_GENERATED):
                path = Path(folder, name)
                yield path.relative_to(root).as_posix(), path
