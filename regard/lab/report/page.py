"""The page: one HTML file that opens from disk and loads nothing, with what it shows inside it as JSON."""

from collections.abc import Iterable

from regard.explore.page import filled
from regard.lab.experiment.row import Row
from regard.lab.report.told import told


def render(rows: Iterable[Row]) -> str:
    """The whole page."""
    content = told(rows)
    names = ", ".join(question["name"] for question in content["questions"]) or "nothing asked yet"
    return filled("regard.lab.report", names, content, "page.js")
