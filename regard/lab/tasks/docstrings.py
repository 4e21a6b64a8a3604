"""Docstrings: what a function does, said in the words of its author, from its source."""

import platform
import re
from collections.abc import Sequence
from dataclasses import dataclass

from regard.lab.data.docstrings import read_docstrings
from regard.lab.data.pairs import Pair
from regard.lab.data.stdlib import read_modules, stdlib_root
from regard.lab.tasks.text_pairs import TextPairs, first_words, most_frequent


@dataclass(frozen=True, kw_only=True)
class Docstrings(TextPairs):
    """A function of the standard library without its docstring -> the docstring's first paragraph; split by file.

    Needs no download. The text is that of the running interpreter: results compare only at equal checksums.
    """

    name = "docstrings"
    baseline = "first words, most frequent target or function's name"
    sources = ("stdlib",)
    cuts_source = True

    metric: str = "rouge_l"  # type: ignore[misc]
    source_len: int = 96
    target_len: int = 48

    def pairs(self) -> list[Pair]:
        return read_docstrings(read_modules(stdlib_root()))

    def origin(self) -> dict[str, str]:
        return {"cpython": platform.python_version()}

    def trivial_answers(self, train: Sequence[Pair], sources: Sequence[str]) -> list[list[str]]:
        """The source's first words, the most frequent summary, and the words of the function's name."""
        return [
            first_words(train, sources),
            most_frequent(train, sources),
            [_name(source) for source in sources],
        ]


def _name(source: str) -> str:
    """ "def _read_file(path):" -> "read file"."""
    found = re.search(r"def\s+(\w+)", source)
    return " ".join(found.group(1).split("_")).strip() if found else source
