"""Source of a class or function: the checksum by which its results are told from those before an edit."""

import ast
import hashlib
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from regard.core import OptionError

LIBRARY = "regard"
"""Source of what is Regard's own: it changes with the version alone."""


def label(of: Callable[..., Any]) -> str:
    """module:Class, as it is written on a command line."""
    return f"{of.__module__}:{of.__qualname__}"


@cache  # what runs is what was imported, whatever the file holds later
def source(of: Callable[..., Any]) -> str:
    """LIBRARY, or the sha256 of the name of a class or function of your own and of every file of yours that it needs.

    These are its module, those of its parents, and what they import in turn; of installed packages, only its own. Imports
    count where an import statement names them. Raises OptionError for one that was typed in at a prompt.
    """
    while isinstance(of, partial):
        of = of.func
    parents = of.__mro__ if isinstance(of, type) else (of,)
    if of.__module__.partition(".")[0] == LIBRARY:
        return LIBRARY
    files = _files([one.__module__ for one in parents], home=of.__module__)
    if of.__module__ not in files:
        raise OptionError(
            f"{label(of)} cannot be measured: it is in no file, so that nothing tells its results from those before an edit. "
            "Write it into a module."
        )
    digest = hashlib.sha256(label(of).encode())
    for name, path in sorted(files.items()):
        content = path.read_bytes()
        digest.update(f"\n{name} {len(content)}\n".encode() + content)
    return digest.hexdigest()


def _files(waiting: list[str], home: str) -> dict[str, Path]:
    """Module -> file, of these and of what they import."""
    found: dict[str, Path] = {}
    while waiting:
        name = waiting.pop()
        path = None if name in found else _located(name)
        if path is None:
            continue
        ours = name.partition(".")[0] == LIBRARY
        same = name.partition(".")[0] == home.partition(".")[0]
        if not ours and (same or not _installed(path)):
            found[name] = path
            waiting += _imported(name, path)
    return found


def _located(name: str) -> Path | None:
    """File of a module, which is not imported for it; None for one that has none."""
    if name in sys.modules:
        file = getattr(sys.modules[name], "__file__", None)
        return Path(file) if file and os.path.isfile(file) else None
    parts, places, spec = name.split("."), None, None
    for end in range(1, len(parts) + 1):
        if end > 1 and places is None:  # not in a package
            return None
        spec = PathFinder.find_spec(".".join(parts[:end]), places)
        if spec is None:
            return None
        places = spec.submodule_search_locations
    assert spec is not None
    return Path(spec.origin) if spec.origin and os.path.isfile(spec.origin) else None


def _installed(path: Path) -> bool:
    real = Path(os.path.realpath(path))
    standard = os.path.realpath(sysconfig.get_path("stdlib"))
    return real.is_relative_to(standard) or bool({"site-packages", "dist-packages"} & {*real.parts})


def _imported(name: str, path: Path) -> Iterator[str]:
    """The modules that may be imported by a file's statements, with the packages that they are in."""
    if path.suffix != ".py":
        return
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    yield package
    try:
        statements = ast.parse(path.read_bytes())
    except SyntaxError:  # it was never imported
        return
    for node in ast.walk(statements):
        named: list[str] = []
        if isinstance(node, ast.Import):
            named = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            with suppress(ImportError):  # beyond the package
                base = resolve_name("." * node.level + (node.module or ""), package)
                named = [base, *(f"{base}.{alias.name}" for alias in node.names)]
        for one in named:
            parts = one.split(".")
            yield from (".".join(parts[:end]) for end in range(1, len(parts) + 1))
