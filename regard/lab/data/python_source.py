"""The source text of the running Python's standard library, and its docstrings."""

import ast
import os
import re
import sysconfig
import textwrap
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from regard.core import OptionError
from regard.lab.data.pairs import Pair

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


_FEWEST_WORDS = 3


def read_docstrings(modules: Mapping[str, bytes]) -> list[Pair]:
    """Functions with the first paragraph of their docstrings, read out of Python source.

    For each documented function: its source without the docstring -> the docstring's first paragraph.

    `modules` maps a file's name to its source; the file is the pair's group. Left out: functions that consist of their
    docstring, first paragraphs of fewer than three words or with an example (>>>), files that do not parse.
    """
    return [
        Pair(body, summary, name)
        for name, source in modules.items()
        for body, summary in _functions(source)
    ]


def _functions(source: bytes) -> Iterator[tuple[str, str]]:
    try:
        text = source.decode("utf-8")
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return
    lines = text.replace("\r\n", "\n").split("\n")  # as the parser counts them
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and len(node.body) > 1:
            summary = summary_of(ast.get_docstring(node) or "")
            if len(summary.split()) >= _FEWEST_WORDS and ">>>" not in summary:
                body = _without_docstring(node, lines)
                if body:
                    yield body, summary


def summary_of(docstring: str) -> str:
    """The first paragraph in one line."""
    return " ".join(re.split(r"\n\s*\n", docstring.strip(), maxsplit=1)[0].split())


def _without_docstring(node: ast.FunctionDef | ast.AsyncFunctionDef, lines: list[str]) -> str:
    """From `def` on; empty where the docstring shares a line with code."""
    doc, following = node.body[0], node.body[1]
    assert node.end_lineno is not None and doc.end_lineno is not None
    if doc.lineno == node.lineno or following.lineno == doc.end_lineno:
        return ""
    kept = lines[node.lineno - 1 : doc.lineno - 1] + lines[doc.end_lineno : node.end_lineno]
    return textwrap.dedent("\n".join(line for line in kept if line.strip()))
