"""The answer, drawn from a ledger's rows: a terminal table, plain data, one page, one picture.

    terminal(rows)            -> something rich can print        plain(rows)           -> the same, for --json
    write_page(rows, path)    -> report.html, self-contained     picture(rows, path)   -> .png or .svg for a README

Charts need altair and vl-convert, which are imported when a page or picture is drawn.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from regard.lab.arena.report.table import plain, terminal
from regard.lab.arena.results import Result
from regard.lab.data.files import whole

__all__ = ["picture", "plain", "terminal", "write_page"]


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
