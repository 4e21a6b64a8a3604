"""Shared parts of the pages that open from disk: content policy, data inside them, first styles and script.

A page is one file. Its policy names its script and its style by their hashes, so that nothing else can run, and forbids
making markup of a text. Its data are JSON, and its script shows them as text nodes (`elements.js`).
"""

import base64
import hashlib
import json
from functools import cache
from importlib.resources import files
from typing import Any


def parts(package: str, *scripts: str) -> dict[str, str]:
    """Style, script and Content-Security-Policy of a page: the shared ones, then `page.css` and these scripts of the package."""
    style = asset(__name__, "base.css") + asset(package, "page.css")
    script = "\n".join([asset(__name__, "elements.js"), *(asset(package, one) for one in scripts)])

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    policy = (
        f"default-src 'none'; script-src {source(script)}; style-src {source(style)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    return {"style": style, "script": script, "policy": policy}


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element: it holds no <, > or &. Raises ValueError for NaN and infinities."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


@cache
def asset(package: str, name: str) -> str:
    return files(package).joinpath(name).read_text(encoding="utf-8")
