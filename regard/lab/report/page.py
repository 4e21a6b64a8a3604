"""The page: one HTML file that opens from disk and loads nothing, with what it shows inside it as JSON.

The content policy names the script and the style by their hashes, so nothing else can run, and forbids making markup from text.
"""

import json
from collections.abc import Iterable
from functools import cache
from importlib.resources import files

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from regard.explore.page import base_style, elements_script, policy
from regard.lab.experiment.row import Row
from regard.lab.report.told import told


def render(rows: Iterable[Row]) -> str:
    """The whole page."""
    content = told(rows)
    style = base_style() + _asset("page.css")
    script = "\n".join([elements_script(), _asset("page.js")])
    names = ", ".join(question["name"] for question in content["questions"]) or "nothing asked yet"
    return _template().render(
        title=f"Regard: {names}",
        content=content,
        policy=policy(style, script),
        style=Markup(style),
        script=Markup(script),
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


@cache
def _asset(name: str) -> str:
    return files("regard.lab.report").joinpath(name).read_text(encoding="utf-8")
