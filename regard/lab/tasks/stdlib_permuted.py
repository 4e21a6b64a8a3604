"""Stdlib permuted: bytes of the Python standard library's own source, asked for in drawn orders."""

import platform
from collections.abc import Mapping
from dataclasses import dataclass, replace

from regard.lab.data.stdlib import read_modules, stdlib_root
from regard.lab.tasks.permuted import PermutedLanguageModelling
from regard.lab.tasks.task import Splits


@dataclass(frozen=True, kw_only=True)
class StdlibPermuted(PermutedLanguageModelling):
    """The text is that of the running interpreter, as in `stdlib_bytes`: results compare only at equal checksums."""

    name = "stdlib_permuted"
    sources = ("stdlib",)

    def read(self) -> Mapping[str, bytes]:
        return read_modules(stdlib_root())

    def load(self) -> Splits:
        return replace(super().load(), notes={"cpython": platform.python_version()})
