"""The answer, drawn from a ledger's rows: a terminal table, plain data, one page, one picture.

    terminal(rows)            -> something rich can print        plain(rows)           -> the same, for --json
    read_rows(path)           -> the rows of a ledger, of a page, or of the JSON saved from one
    write_page(rows, path)    -> report.html, self-contained     picture(rows, path)   -> .png or .svg for a README

Charts need altair and vl-convert, which are imported when a page or picture is drawn.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from regard.core import StoredDataError
from regard.lab.arena.ledger import Ledger
from regard.lab.arena.report.table import plain, terminal
from regard.lab.arena.results import Result
from regard.lab.arena.rows import inside, unpacked
from regard.lab.data.files import reported, whole

__all__ = ["picture", "plain", "read_rows", "terminal", "write_page"]

LARGEST_FILE = 50_000_000  # bytes of a page or JSON that is read


def read_rows(path: str | os.PathLike[str]) -> list[Result]:
    """Rows of a ledger, or, where the path ends in .html or .json, of a page or of the JSON saved from one.

    Raises StoredDataError for what is none, PathError where it cannot be read.
    """
    path = Path(path)
    if path.suffix not in (".html", ".json"):
        with Ledger(path) as ledger:
            return ledger.results()
    with reported(path, "read"), path.open("rb") as file:
        content = file.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise StoredDataError(f"{path} cannot be read: it is larger than {LARGEST_FILE:,} bytes.")
    text = content.decode("utf-8", errors="replace")
    if path.suffix == ".html":
        text = inside(text)
    try:
        return unpacked(text)
    except ValueError as error:
        raise StoredDataError(f"{path} cannot be read: {error}.") from error


def write_page(rows: Iterable[Result], path: str | os.PathLike[str]) -> Path:
    """Write the page for these rows, whole or not at all. Returns where it is."""
    from regard.lab.arena.report.page import render

    path, text = Path(path), render(rows)
    with whole(path) as partial:
        partial.write_text(text, encoding="utf-8")
    return path


def picture(rows: Iterable[Result], path: str | os.PathLike[str]) -> Path:
    """Draw quality against speed against memory as one picture, PNG or SVG after the path's ending.

    Raises OptionError for another ending, and where no mechanism has both a quality and a timing.
    """
    from regard.lab.arena.report.charts import draw_picture

    return draw_picture(rows, Path(path))
