"""The page: one HTML file that opens from disk, with the rows it was made from inside it.

`page.html.j2` is the page, and its script draws it from the rows; what is said here once is checked there again. The
content policy names the script and the style by their hashes, so nothing else can run, and forbids making markup from text.
"""

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from regard.explore.page import base_style, elements_script, policy
from regard.lab.arena import rows as stored
from regard.lab.arena.recommend import BY_GROWTH, crossover
from regard.lab.arena.report import LARGEST_FILE, words
from regard.lab.arena.report.crossing import LEVEL
from regard.lab.arena.report.summary import (
    LANGUAGE_METRICS,
    MOST_FREEDOM,
    PASSES,
    TOLERANCE,
    UNITS,
    LedgerSummary,
    student,
)
from regard.lab.arena.results import Result

SCRIPTS = ("read.js", "words.js", "summary.js", "draw.js", "page.js")


def render(rows: Iterable[Result]) -> str:
    """The whole page. Raises ValueError for a row with a field of a wrong type."""
    summary = LedgerSummary(rows)
    style = base_style() + _asset("page.css")
    script = "\n".join([elements_script(), *map(_asset, SCRIPTS)])
    return _template().render(
        headline=words.headline(summary),
        certainty=words.certainty(summary),
        results=_results(summary),
        rules=_rules(),
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
    )


def _results(summary: LedgerSummary) -> dict[str, Any]:
    """The rows, and for each that counts the place of its mechanism."""
    labels = summary.labels
    places: dict[str | None, int] = {label: place for place, label in enumerate(labels)}
    return stored.packed(summary.rows) | {
        "labels": [places.get(summary.label(row)) for row in summary.rows],
        "mechanisms": [
            {"label": label, "family": family, "baseline": summary.is_baseline(label)}
            for label, family in labels.items()
        ],
        "notes": summary.notes,
        "by_growth": {
            unit: _by_growth(LedgerSummary(summary.rows, unit)) for unit in summary.units
        },
    }


def _by_growth(summary: LedgerSummary) -> dict[str, list[str | None]]:
    """Pass -> for each mechanism, where it overtakes softmax beyond the measured lengths; None where it does within them."""
    found = {}
    for kind in summary.passes:
        at = {
            label: crossover(summary, label, kind)
            for label in summary.mechanisms
            if not summary.is_baseline(label)
        }
        found[str(kind)] = [
            str(one).removesuffix(BY_GROWTH)
            if (one := at.get(label)) and not one.measured
            else None
            for label in summary.labels
        ]
    return found


def _rules() -> dict[str, Any]:
    """Rules that the script shares with Python: fields of a row with their types, and the constants of a choice."""
    return {
        "format": stored.FORMAT,
        "kinds": list(stored.KINDS),
        "schema": {
            kind: {name: field._asdict() for name, field in schema.items()}
            for kind, schema in stored.SCHEMA.items()
        },
        "longest_text": stored.LONGEST_TEXT,
        "largest_number": stored.LARGEST_NUMBER,
        "largest_whole": stored.LARGEST_WHOLE,
        "largest_file": LARGEST_FILE,
        "passes": PASSES,
        "pass_names": words.PASS_NAMES,
        "units": UNITS,
        "unit_names": words.UNIT_NAMES,
        "language_metrics": sorted(LANGUAGE_METRICS),
        "tolerance": TOLERANCE,
        "level": LEVEL,
        "student": [student(freedom) for freedom in range(1, MOST_FREEDOM + 1)],
    }


@cache
def _template():
    environment = Environment(
        loader=PackageLoader("regard.lab.arena", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_function"] = json.dumps
    return environment.get_template("page.html.j2")


@cache
def _asset(name: str) -> str:
    return files("regard.lab.arena.report").joinpath(name).read_text(encoding="utf-8")
