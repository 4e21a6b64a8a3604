"""Functions and what their docstrings say first, read out of Python source."""

import ast
import re
import textwrap
from collections.abc import Iterator, Mapping

from regard.lab.data.pairs import Pair

_FEWEST_WORDS = 3


def read_docstrings(modules: Mapping[str, bytes]) -> list[Pair]:
    """For each documented function: its source without the docstring -> the docstring's first paragraph.

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
