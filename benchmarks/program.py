"""What the programs of this folder share: how one ends, and how rows are told."""

import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import tyro

from regard.cli.printing import print_json, print_table
from regard.core import RegardError
from regard.lab.arena.provenance import provenance


def run(main: Callable[..., int]) -> None:
    """Ends the process with what `main` returns, or with 2 and the words of an error of ours."""
    try:
        sys.exit(tyro.cli(main))
    except RegardError as error:
        print(f"{Path(sys.argv[0]).stem}: {error}", file=sys.stderr)
        sys.exit(2)


def show(rows: list[dict[str, Any]], *, as_json: bool, **more: Any) -> int:
    """A table of rows and where they were measured, or both as data with whatever `more` there is."""
    origin = provenance()
    if as_json:
        print_json({"rows": rows, **more, "origin": asdict(origin)})
        return 0
    print_table(rows)
    print(f"{origin.device}; allocator {origin.allocator}; {origin.versions}; {origin.commit}")
    return 0
