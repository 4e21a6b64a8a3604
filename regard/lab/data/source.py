"""Source of a class or function: the checksum by which its results are told from those before an edit."""

import ast
import os
import sys
import sysconfig
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from hashlib import sha256
from importlib.machinery import PathFinder
from importlib.util import resolve_name
from pathlib import Path
from typing import Any

from regard.core import OptionError
from regard.core.files import file_sha256, text_sha256

LIBRARY = "regard"
APART = ("regard.lab", "regard.testing", "regard.reference", "regard.cli")
"""Parts of the library that no mechanism's result depends on."""


def label(of: Callable) -> str:
    """module:Class, as it is written on a command line."""
    return f"{of.__module__}:{of.__qualname__}"


@cache  # what runs is what was imported, whatever the file holds later
def source(of: Any) -> str:
    """The sha256 of the name of a class or function and of the code of every module that it needs.

    Comment lines and docstrings do not count. Raises OptionError for one that was typed in at a prompt.
    """
    found = files(of)
    if of.__module__ not in found:
        raise OptionError(
            f"{label(of)} cannot be measured: it is in no file, so that nothing tells its results from those before an edit. Write it into a module."
        )
    digest = sha256(label(of).encode())
    for name, path in sorted(found.items()):
        digest.update(f"\n{name}\n{_code(path)}".encode())
    return digest.hexdigest()


def code(*parts: Any) -> str:
    """The sha256 of the code of the modules of these classes and functions alone, not of what they import."""
    files = (_located(part.__module__) for part in parts)
    return text_sha256("\n".join(_code(file) for file in files if file))


def files(of: Any) -> dict[str, Path]:
    """Module -> file, of all that a class or function needs.

    These are its module, those of its parents, and what they import in turn: of Regard the modules that are reached, of one's own
    all, of installed packages only its own. Imports count where an import statement names them.
    """
    parents = of.__mro__ if isinstance(of, type) else (of,)
    waiting = [one.__module__ for one in parents]
    home = of.__module__.partition(".")[0]
    found = {}
    own = set(waiting)
    while waiting:
        name = waiting.pop()
        apart = name.startswith(APART) and name not in own
        path = None if name in found or apart else _located(name)
        if not path:
            continue
        top = name.partition(".")[0]
        if top in (LIBRARY, home) or not _installed(path):
            found[name] = path
            waiting += _imported(name, path, whole=top != LIBRARY)
    return found


def own_files(of: Any) -> list[Path]:
    """The files of these that are in no installed package; none for what is the library's own."""
    if of.__module__.partition(".")[0] == LIBRARY:
        return []
    return sorted(path for path in files(of).values() if not _installed(path))


def own_code(of: Any) -> str:
    """The sha256 of the code of these files."""
    return text_sha256("\n".join(map(_code, own_files(of))))


def held(one: Any) -> list:
    """What a partial, or the function around one, holds for it."""
    if isinstance(one, partial):
        return [one.args, one.keywords, held(one.func)]
    return [cell.cell_contents for cell in getattr(one, "__closure__", None) or ()]


@cache
def _code(path: Path) -> str:
    """A file's code as Python would write it, without comments and docstrings; a checksum of all of a file that is not Python."""
    tree = _tree(path)
    if not tree:
        return file_sha256(path)
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for node in ast.walk(tree):
        if isinstance(node, documented) and ast.get_docstring(node, clean=False) is not None:
            del node.body[0]
    return ast.unparse(tree)


def _tree(path: Path) -> ast.Module | None:
    """The syntax tree; None for a file that is not Python, or does not parse, and so was never imported."""
    if path.suffix == ".py":
        with suppress(SyntaxError):
            return ast.parse(path.read_bytes())
    return None


@cache
def _located(name: str) -> Path | None:
    """File of a module, which is not imported for it; None for one that has none."""
    file = getattr(sys.modules.get(name), "__file__", None)
    places = None
    for n, part in enumerate(name.split(".") if name not in sys.modules else ()):
        # a module that is no package holds nothing
        spec = None if n and places is None else PathFinder.find_spec(part, places)
        if not spec:
            return None
        file = spec.origin
        places = spec.submodule_search_locations
    return Path(file) if file and os.path.isfile(file) else None


@cache
def _installed(path: Path) -> bool:
    real = Path(os.path.realpath(path))
    standard = os.path.realpath(sysconfig.get_path("stdlib"))
    return real.is_relative_to(standard) or bool({"site-packages", "dist-packages"} & {*real.parts})


@cache
def _imported(name: str, path: Path, whole: bool) -> tuple[str, ...]:
    """The modules that may be imported by a file's statements; with `whole`, the packages that they are in too."""
    tree = _tree(path)
    if not tree:
        return ()
    package = name if path.name == "__init__.py" else name.rpartition(".")[0]
    found = [package] if whole else []
    for node in ast.walk(tree):
        for one in _named(node, package):
            parts = one.split(".")
            first = len(parts) if parts[0] == LIBRARY else 1
            found += (".".join(parts[:end]) for end in range(first, len(parts) + 1))
    return tuple(dict.fromkeys(found))


def _named(node: ast.AST, package: str) -> list[str]:
    """The modules that a statement names, or may name."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom):
        with suppress(ImportError):  # beyond the package
            base = resolve_name("." * node.level + (node.module or ""), package)
            names = [f"{base}.{alias.name}" for alias in node.names]
            return names if base == LIBRARY else [base, *names]
    return []
