"""Shared parts of the pages that open from disk: content policy, data inside them, first styles and script.

A page is one file. Its policy names its script and its style by their hashes, so that nothing else can run, and forbids
making markup of a text. Its data are JSON, and its script shows them as text nodes (`elements.js`).
"""

import base64
import hashlib
import html
import json
from functools import cache
from importlib.resources import files
from string import Template
from typing import Any


def filled(package: str, title: str, data: Any, *scripts: str) -> str:
    """The package's `page.html` around the title and the data, with a policy, and the shared style and script before the package's own."""
    style = asset(__name__, "base.css") + asset(package, "page.css")
    script = "\n".join([asset(__name__, "elements.js"), *(asset(package, one) for one in scripts)])

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    policy = (
        f"default-src 'none'; script-src {source(script)}; style-src {source(style)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    parts = {"title": html.escape(title), "data": embedded(data), "policy": policy}
    return Template(asset(package, "page.html")).substitute(parts, style=style, script=script)


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element: it holds no <, > or &. Raises ValueError for NaN and infinities."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


@cache
def asset(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text("utf-8")
