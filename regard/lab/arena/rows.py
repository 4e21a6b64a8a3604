"""Rows as JSON, and back: every field is read as its declared type, or refused.

SCHEMA follows from the annotations of `results.py`. The ledger and the page's script read by it, so that nothing that
was received is ever more than text, a number within bounds, or a short list of such.
"""

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from types import NoneType
from typing import Any, Literal, NamedTuple, cast, get_args, get_origin, get_type_hints

from regard.core.errors import visible
from regard.lab.arena.results import (
    LawsChecked,
    NotRun,
    Provenance,
    Result,
    Row,
    Timed,
    Trained,
    Tried,
)

FORMAT = 1
KINDS: dict[str, type] = {
    "trained": Trained,
    "timed": Timed,
    "not run": NotRun,
    "checked": LawsChecked,
}
"""Kinds of rows that the page draws."""
KEPT: dict[str, type] = {**KINDS, "tried": Tried}
"""Kinds of rows that a ledger keeps."""
LONGEST_TEXT = 20_000  # characters
LARGEST_NUMBER = 1e100  # sums and products of such stay finite
LARGEST_WHOLE = 2**63
DEEPEST = 8  # lists within lists of an option
_SIGNED = {"value", "valid_value"}  # everything else is counted or measured from zero
_DIVISORS = {"length", "batch", "dim", "num_heads", "rounds", "median_ms", "baseline_ms"}
_TYPES: dict[Any, str] = {
    str: "text",
    int: "whole",
    float: "number",
    bool: "flag",
    dict[str, Any]: "options",
    dict[str, str]: "texts",
    dict[str, float]: "numbers",
    list[tuple[int, float]]: "curve",
    Provenance: "origin",
}


class Field(NamedTuple):
    """The values that a field of a row may hold."""

    type: str  # a value of _TYPES, or "word" for one of `words`
    words: tuple[str, ...]
    none: bool  # None is allowed
    required: bool
    least: float | None

    @property
    def wanted(self) -> str:
        if self.type == "word":
            return f"one of {', '.join(self.words)}"
        bound = "" if self.least is None else f" of at least {self.least:g}"
        return _WANTED[self.type] + bound + (" or null" if self.none else "")


_WANTED = {
    "text": f"a text of at most {LONGEST_TEXT:,} characters",
    "whole": "a whole number",
    "number": "a finite number",
    "flag": "true or false",
    "options": "an object of texts, numbers and lists",
    "texts": "an object of texts",
    "numbers": "an object of finite numbers",
    "curve": "a list of [step, number] pairs",
    "origin": "an object with the fields of a provenance",
}


def _schema(cls: type) -> dict[str, Field]:
    hints, found = get_type_hints(cls), {}
    for field in fields(cls):
        hint, words = hints[field.name], ()
        none = NoneType in get_args(hint)
        if none:
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
        if get_origin(hint) is Literal:
            words = get_args(hint)
        kind = "word" if words else _TYPES[hint]
        least = None
        if kind in ("whole", "number") and field.name not in _SIGNED:
            least = 0.0 if field.name not in _DIVISORS else 1.0 if kind == "whole" else 1e-9
        required = field.default is MISSING and field.default_factory is MISSING
        found[field.name] = Field(kind, words, none, required, least)
    return found


SCHEMA: dict[str, dict[str, Field]] = {
    **{kind: _schema(cls) for kind, cls in KINDS.items()},
    "origin": _schema(Provenance),
}
_SCHEMAS = {**SCHEMA, "tried": _schema(Tried)}


def kind_of(row: Row) -> str:
    return next(name for name, cls in KEPT.items() if type(row) is cls)


def read_row(kind: str, values: object) -> Row:
    """The row with these values, or ValueError that names the field and what it must hold."""
    if kind not in KEPT:
        raise ValueError(f"kind must be one of {', '.join(KEPT)}, got {_said(kind)}")
    return KEPT[kind](**_checked(kind, values))


def _checked(kind: str, values: object) -> dict[str, Any]:
    schema = _SCHEMAS[kind]
    if not isinstance(values, dict):
        raise ValueError(f"a row ({kind}) must be an object, got {_said(values)}")
    strange = sorted(visible(str(name)) for name in values.keys() - schema.keys())
    if strange:
        raise ValueError(f"unknown fields: {', '.join(strange)[:200]}")
    missing = [name for name, field in schema.items() if field.required and name not in values]
    if missing:
        raise ValueError(f"missing fields: {', '.join(missing)}")
    return {name: _value(name, schema[name], value) for name, value in values.items()}


def _value(name: str, field: Field, value: Any) -> Any:
    if value is None and field.none:
        return None
    if field.type == "origin":
        plain = vars(value) if isinstance(value, Provenance) else value
        return Provenance(**_checked("origin", plain))
    fits = value in field.words if field.type == "word" else _IS[field.type](value)
    if not fits or (field.least is not None and value < field.least):
        raise ValueError(f"{name} must be {field.wanted}, got {_said(value)}")
    return [tuple(point) for point in value] if field.type == "curve" else value


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return False
    return not any("\ud800" <= letter <= "\udfff" for letter in value)  # halves of characters


def _is_whole(value: object) -> bool:
    return type(value) is int and -LARGEST_WHOLE <= value <= LARGEST_WHOLE


def _is_number(value: object) -> bool:
    if type(value) is int:
        return _is_whole(value)
    return type(value) is float and math.isfinite(value) and abs(value) <= LARGEST_NUMBER


def _is_option(value: object, depth: int = DEEPEST) -> bool:
    if isinstance(value, list | tuple | dict) and depth == 0:
        return False
    if isinstance(value, dict):
        return all(_is_text(k) and _is_option(v, depth - 1) for k, v in value.items())
    if isinstance(value, list | tuple):
        return all(_is_option(item, depth - 1) for item in value)
    return value is None or isinstance(value, bool) or _is_text(value) or _is_number(value)


def _is_texts(value: object) -> bool:
    return isinstance(value, dict) and all(
        map(_is_text, [part for pair in value.items() for part in pair])
    )


def _is_numbers(value: object) -> bool:
    return isinstance(value, dict) and all(_is_text(k) and _is_number(v) for k, v in value.items())


def _is_curve(value: object) -> bool:
    return isinstance(value, list) and all(
        isinstance(point, list | tuple)
        and len(point) == 2
        and _is_whole(point[0])
        and _is_number(point[1])
        for point in value
    )


_IS: dict[str, Callable[[Any], bool]] = {
    "text": _is_text,
    "whole": _is_whole,
    "number": _is_number,
    "flag": lambda value: isinstance(value, bool),
    "options": lambda value: isinstance(value, dict) and _is_option(value),
    "texts": _is_texts,
    "numbers": _is_numbers,
    "curve": _is_curve,
}


def _said(value: object) -> str:
    text = visible(repr(value))
    return text if len(text) <= 60 else f"{text[:60]}…"


def packed(rows: Iterable[Result]) -> dict[str, Any]:
    """Rows as plain data for JSON: field names once, and each provenance once but for its start.

    Raises ValueError for a row with a field of a wrong type.
    """
    origins: dict[str, int] = {}
    shown: list[dict[str, Any]] = []

    def origin(where: Provenance) -> list[Any]:
        plain = {f.name: getattr(where, f.name) for f in fields(where) if f.name != "started"}
        place = origins.setdefault(json.dumps(plain, sort_keys=True), len(origins))
        if place == len(shown):
            shown.append(plain)
        return [place, where.started]

    def cells(row: Result) -> list[Any]:
        _checked(kind_of(row), vars(row))
        values = (getattr(row, name) for name in SCHEMA[kind_of(row)])
        return [origin(value) if isinstance(value, Provenance) else value for value in values]

    return {
        "format": FORMAT,
        "fields": {kind: list(SCHEMA[kind]) for kind in KINDS},
        "rows": [[kind_of(row), *cells(row)] for row in rows],
        "origins": shown,
    }


def inside(page: str) -> str:
    """The JSON of the rows that a page was made from; empty where there is none."""
    return page.partition('id="results">')[2].partition("</")[0]


def unpacked(text: str) -> list[Result]:
    """The rows of a JSON text that `packed` made. Raises ValueError that says what is wrong with any other."""
    try:
        content = json.loads(text)
    except RecursionError:
        raise ValueError("its lists are nested too deeply") from None
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise ValueError(f"it is not of format {FORMAT}")
    return [_unpacked_row(content, row) for row in _listed(content, "rows")]


def _unpacked_row(content: Mapping[str, Any], row: object) -> Result:
    if not isinstance(row, list) or not row or row[0] not in list(KINDS):
        raise ValueError(f"a row must begin with its kind, got {_said(row)}")
    names = _listed(_mapping(content, "fields"), row[0])
    if len(names) != len(row) - 1 or not all(isinstance(name, str) for name in names):
        raise ValueError(f"a row ({row[0]}) has {len(row) - 1} values for {len(names)} fields")
    values = dict(zip(names, row[1:], strict=True))
    if "provenance" in values:
        values["provenance"] = _origin(content, values["provenance"])
    return cast(Result, read_row(row[0], values))


def _origin(content: Mapping[str, Any], cell: object) -> dict[str, Any]:
    origins = _listed(content, "origins")
    if not isinstance(cell, list) or len(cell) != 2 or not _is_whole(cell[0]):
        raise ValueError(f"provenance must be [place, started], got {_said(cell)}")
    if not 0 <= cell[0] < len(origins) or not isinstance(origins[cell[0]], dict):
        raise ValueError(f"there is no origin {cell[0]}")
    return origins[cell[0]] | {"started": cell[1]}


def _listed(content: Mapping[str, Any], name: str) -> Sequence[Any]:
    if not isinstance(content.get(name), list):
        raise ValueError(f"{name} must be a list")
    return content[name]


def _mapping(content: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    if not isinstance(content.get(name), dict):
        raise ValueError(f"{name} must be an object")
    return content[name]
