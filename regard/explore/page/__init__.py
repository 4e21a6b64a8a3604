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


def policy(style: str, script: str) -> str:
    """The content of the page's Content-Security-Policy for exactly this style and this script."""

    def source(text: str) -> str:
        return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"

    return (
        f"default-src 'none'; script-src {source(script)}; style-src {source(style)}; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )


def embedded(value: Any) -> str:
    """JSON that is safe inside a script element: it holds no <, > or &. Raises ValueError for NaN and infinities."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False)
    for letter in "<>&":
        text = text.replace(letter, f"\\u{ord(letter):04x}")
    return text


def base_style() -> str:
    return _asset("base.css")


def elements_script() -> str:
    return _asset("elements.js")


@cache
def _asset(name: str) -> str:
    return files(__name__).joinpath(name).read_text(encoding="utf-8")
