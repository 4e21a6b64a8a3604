"""The page: one HTML file that opens from disk and loads nothing, with what it shows inside it as JSON.

The content policy names the script and the style by their hashes, so nothing else can run, and forbids making markup from text.
"""

import json
from collections.abc import Iterable
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from regard.explore.page import parts
from regard.lab.experiment.row import Row
from regard.lab.report.told import told


def render(rows: Iterable[Row]) -> str:
    """The whole page."""
    content = told(rows)
    around = parts("regard.lab.report", "page.js")
    names = ", ".join(question["name"] for question in content["questions"]) or "nothing asked yet"
    return _template().render(
        title=f"Regard: {names}",
        content=content,
        policy=around["policy"],
        style=Markup(around["style"]),
        script=Markup(around["script"]),
    )


@cache
def _template():
    environment = Environment(
        loader=PackageLoader("regard.lab", "report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.policies["json.dumps_kwargs"] = {"separators": (",", ":"), "allow_nan": False}
    environment.policies["json.dumps_function"] = json.dumps
    return environment.get_template("page.html.j2")
