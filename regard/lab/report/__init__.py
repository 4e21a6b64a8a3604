"""The answer, drawn from a ledger's rows: a terminal table, plain data, one page, one picture, one document.

    terminal(rows)            -> something rich can print        told(rows)            -> plain data, for --json
    read_rows(path)           -> the rows of a ledger
    write_page(rows, path)    -> report.html, self-contained     picture(rows, path)   -> .png or .svg for a README

Python computes, JavaScript draws.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from regard.core import OptionError
from regard.core.files import whole
from regard.explore.page import filled
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.results import questions
from regard.lab.experiment.row import Row
from regard.lab.report.terminal import markdown, terminal
from regard.lab.report.told import of_question, told

__all__ = ["document", "picture", "read_rows", "terminal", "told", "write_page"]


def read_rows(path: str | Path) -> list[Row]:
    """Rows of a ledger. Raises StoredDataError for what is none, PathError where it cannot be read."""
    with Ledger(path) as ledger:
        return ledger.rows()


def render(rows: Iterable[Row]) -> str:
    """The page: one HTML file that opens from disk and loads nothing, with what it shows inside it as JSON."""
    content = told(rows)
    names = ", ".join(question["name"] for question in content["questions"]) or "nothing asked yet"
    return filled(__name__, names, content, "page.js")


def write_page(rows: Iterable[Row], path: str | Path) -> Path:
    """Write the page for these rows, whole or not at all. Returns where it is."""
    path = Path(path)
    text = render(rows)
    with whole(path) as partial:
        partial.write_text(text, "utf-8")
    return path


def picture(rows: Iterable[Row], path: str | Path) -> Path:
    """Draw the newest question's chart and grid as one picture, PNG or SVG after the path's ending.

    Raises OptionError for another ending, and where there is nothing to draw.
    """
    from regard.lab.report.pictures import draw

    return draw(told(rows)["questions"], Path(path))


def document(rows: Iterable[Row], path: str | Path, drawn: str | Path | None = None) -> Path:
    """Write the newest question as Markdown, whole or not at all. drawn: what `picture` made of it, which it shows.

    Raises OptionError where nothing was asked, and ExperimentError where its results are of no commit (law 9).
    """
    from regard.lab.experiment.laws import check_page

    asked = questions(rows)
    if not asked:
        raise OptionError("rows must hold a question: there is nothing to write")
    check_page(asked[0])
    path = Path(path)
    shown = os.path.relpath(drawn, path.parent) if drawn else None
    with whole(path) as partial:
        partial.write_text(markdown(of_question(asked[0]), shown), "utf-8")
    return path
