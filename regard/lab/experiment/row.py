"""Row: one result, as the ledger keeps it and pages draw it; every field is read as its declared type, or refused.

Nothing that was received is ever more than text, a number within bounds, or a short list of such.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import partial
from types import NoneType
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from regard.core.errors import visible

Kind = Literal["trained", "timed", "laws", "asked"]
Better = Literal["higher", "lower"]
Pass = Literal["forward", "train", "prefill", "decode"]
Unit = Literal["block", "layer"]
"""The timed unit: mechanism and feed-forward layer at equal parameters, or the bare layer."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Origin of a number."""

    commit: str  # of the working tree, with "+changes" when it is not clean; "unknown" outside a checkout
    command: str
    device: str  # as a person would name it: "AMD EPYC 7B13, 2 threads"
    threads: int
    dtype: str
    versions: dict[str, str]  # python, torch, regard
    started: str  # ISO 8601, UTC
    allocator: str = "unknown"  # "default", or the settings that differ from it


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one entry of a question came to in one column, from one seed at one rate; or why there is nothing.

    kind: "trained"; "timed", whose setting (length, batch ...) is in `setting`; "laws", of a mechanism, whose `reason` is the law
    that it breaks; "asked", a question as it stood, in `config`. cell: what the result is of, seed and rate apart; rows of unlike
    cells never meet in a mean, an interval or a curve.
    """

    kind: Kind
    question: str  # by which it was first asked
    column: str
    entry: str  # label
    cell: str
    source: str  # of the code
    provenance: Provenance
    mixer: str = ""  # name of the catalogue, or module:Class
    options: dict[str, Any] = field(default_factory=dict)
    seed: int = 0
    rate: float | None = None  # learning rate
    causal: bool | None = None  # whether the mechanism saw earlier tokens alone
    metric: str = ""
    better: Better = "higher"
    value: float | None = None  # of the test split, at the best validation checkpoint
    valid_value: float | None = None  # by which the rate is chosen
    chance: float | None = None  # the metric of the task's trivial baseline
    values: dict[str, float] = field(default_factory=dict)  # what else was measured
    scores: list[float] = field(default_factory=list)  # of each test item; their mean is `value`
    parameters: int = 0
    flops: int = 0  # counted: of one training item's forward pass; timed: of one pass
    steps: int = 0
    tokens: int = 0  # seen in training
    seconds: float = 0.0
    data: str = ""  # sha256
    curve: list[tuple[int, float]] = field(default_factory=list)  # (step, validation metric)
    setting: dict[str, Any] = field(default_factory=dict)
    config: dict[str, Any] = field(default_factory=dict)  # task, model and training
    reason: str | None = None  # why there is no value

    @property
    def engine(self) -> tuple[str, str]:
        """Versions on which a result depends; torch's without its build, which goes with the device."""
        versions = self.provenance.versions
        return versions.get("regard", "unknown"), versions.get("torch", "unknown").partition("+")[0]


FORMAT = 2
LONGEST_TEXT = 20_000  # characters
LONGEST_LIST = 200_000
LARGEST_NUMBER = 1e100  # sums and products of such stay finite
LARGEST_WHOLE = 2**63
DEEPEST = 10  # lists within lists of an option
_SIGNED = {"value", "valid_value", "chance", "rate"}  # everything else counts from zero


def _is_text(value: object) -> bool:
    if not isinstance(value, str) or len(value) > LONGEST_TEXT:
        return False
    return not any("\ud800" <= letter <= "\udfff" for letter in value)  # halves of characters


def _is_flag(value: object) -> bool:
    return isinstance(value, bool)


def _is_whole(value: object) -> bool:
    return type(value) is int and -LARGEST_WHOLE <= value <= LARGEST_WHOLE


def _is_number(value: object) -> bool:
    if type(value) is float:
        return math.isfinite(value) and abs(value) <= LARGEST_NUMBER
    return _is_whole(value)


def _is_option(value: object, depth: int = DEEPEST) -> bool:
    if isinstance(value, dict):
        if not all(map(_is_text, value)):
            return False
        value = [*value.values()]
    if isinstance(value, list | tuple):
        short = depth > 0 and len(value) <= LONGEST_LIST
        return short and all(_is_option(item, depth - 1) for item in value)
    return value is None or _is_flag(value) or _is_text(value) or _is_number(value)


def _is_list(value: object, of: Callable[[Any], bool] = _is_number) -> bool:
    return isinstance(value, list) and len(value) <= LONGEST_LIST and all(map(of, value))


def _is_object(value: object, of: Callable[[Any], bool] = _is_option) -> bool:
    return isinstance(value, dict) and all(_is_text(k) and of(v) for k, v in value.items())


def _is_point(value: object) -> bool:
    return (
        isinstance(value, list | tuple)
        and len(value) == 2
        and _is_whole(value[0])
        and _is_number(value[1])
    )


def _never(value: object) -> bool:
    return False


def _maybe(fits: Any) -> Any:
    return lambda value: value is None or _unlike(value, fits, "") is None


def _word(of: Any) -> Any:
    return lambda value: value in get_args(of)


_EXPECTED: dict[str, Any] = {"of": _is_text, "column": _is_text, "ratio": _is_flag}
_EXPECTED |= dict.fromkeys(("beside", "measure"), _maybe(_is_text))
_EXPECTED |= dict.fromkeys(("least", "most"), _maybe(_is_number))
_BOUND = _EXPECTED | {"when": [_EXPECTED]}


class Check(NamedTuple):
    fits: Callable[[Any], bool]
    wanted: str


_CHECKS: dict[Any, Check] = {
    str: Check(_is_text, f"a text of at most {LONGEST_TEXT:,} characters"),
    int: Check(_is_whole, "a whole number"),
    float: Check(_is_number, "a finite number"),
    bool: Check(_is_flag, "true or false"),
    dict[str, Any]: Check(_is_object, "an object of texts, numbers and lists"),
    dict[str, str]: Check(partial(_is_object, of=_is_text), "an object of texts"),
    dict[str, float]: Check(partial(_is_object, of=_is_number), "an object of finite numbers"),
    list[float]: Check(_is_list, f"a list of at most {LONGEST_LIST:,} finite numbers"),
    list[tuple[int, float]]: Check(
        partial(_is_list, of=_is_point), "a list of [step, number] pairs"
    ),
    Provenance: Check(_is_object, "an object with the fields of a provenance"),
}


class Field(NamedTuple):
    """The values that a field of a row may hold."""

    type: Any  # a key of _CHECKS, a Literal, or Provenance
    none: bool  # None is allowed
    required: bool
    check: Check


def _check(hint: Any, name: str) -> Check:
    if get_origin(hint) is Literal:
        return Check(_word(hint), f"one of {', '.join(get_args(hint))}")
    fits, wanted = _CHECKS[hint]
    if hint in (int, float) and name not in _SIGNED:
        return Check(lambda value: fits(value) and value >= 0, f"{wanted} of at least 0")
    return Check(fits, wanted)


def _schema(cls: type) -> dict[str, Field]:
    schema, hints = {}, get_type_hints(cls)
    for one in fields(cls):
        hint = hints[one.name]
        none = NoneType in get_args(hint)
        if none:
            (hint,) = (part for part in get_args(hint) if part is not NoneType)
        required = one.default is MISSING and one.default_factory is MISSING
        schema[one.name] = Field(hint, none, required, _check(hint, one.name))
    return schema


_ROW, _ORIGIN = _schema(Row), _schema(Provenance)


def read_row(values: object) -> Row:
    """The row with these values, or ValueError that names the field and what it must hold."""
    row = Row(**_checked(_ROW, values))
    for name, of in _INSIDE.get(row.kind, {}).items():
        if (wrong := _unlike(getattr(row, name), of, name)) is not None:
            raise ValueError(f"{wrong} is not as a row of kind {row.kind} has it")
    if row.kind == "asked":
        _check_names(row.config)
    return row


def plain(row: Row) -> dict[str, Any]:
    """The row as JSON values, without the fields that hold what they hold by default; read_row reads it back."""
    required = {name: getattr(row, name) for name, one in _ROW.items() if one.required}
    empty = vars(Row(**required))
    return {k: v for k, v in asdict(row).items() if k in required or v != empty[k]}


def _checked(schema: Mapping[str, Field], values: object) -> dict[str, Any]:
    if not isinstance(values, dict):
        raise ValueError(f"a row must be an object, got {_said(values)}")
    if strange := sorted(visible(str(name)) for name in values.keys() - schema.keys()):
        raise ValueError(f"unknown fields: {', '.join(strange)[:200]}")
    if missing := [name for name, one in schema.items() if one.required and name not in values]:
        raise ValueError(f"missing fields: {', '.join(missing)}")
    return {name: _value(name, schema[name], value) for name, value in values.items()}


def _value(name: str, field: Field, value: Any) -> Any:
    if value is None and field.none:
        return None
    if field.type is Provenance:
        return Provenance(**_checked(_ORIGIN, value))
    if not field.check.fits(value):
        wanted = field.check.wanted + " or null" * field.none
        raise ValueError(f"{name} must be {wanted}, got {_said(value)}")
    return [tuple(point) for point in value] if name == "curve" else value


def _above_0(value: Any) -> bool:
    return _is_number(value) and value > 0


SETTING = {"kind": _word(Pass), "unit": _word(Unit)} | dict.fromkeys(
    ("length", "batch", "dim", "num_heads"), lambda value: _is_whole(value) and value > 0
)
"""What a timing's row and its column both say."""
_TRAINED = {
    "task": _is_text, "metric": _is_text, "better": _word(Better), "length": _is_whole,
    "causal": _is_flag, "later": _is_flag, "steps": _maybe(_is_whole), "tokens": _maybe(_is_whole),
    "batch": _is_whole, "shell": _is_object,
}  # fmt: skip
_COLUMNS = {"trained": _TRAINED, "timed": {"setting": SETTING}}
_INSIDE: dict[str, dict[str, Any]] = {
    "asked": {"config": {
        "name": _is_text, "about": _is_text, "kind": lambda value: value in ("screen", "comparison"), "limits": [_is_text],
        "baseline": _is_text, "mark": _is_number, "seeds": [_is_whole], "rates": [_is_number],
        "entries": [{"label": _is_text, "mixer": _is_text, "options": _is_object, "source": _is_text}],
        "lines": [_is_text], "columns": [{"name": _is_text, "kind": _is_text}], "laws": _CHECKS[dict[str, str]].fits,
        "cells": [(_is_text, _is_text, _is_text, _maybe(_is_flag), _maybe(_is_text), _maybe(_is_number))],
        "claims": [{"text": _is_text, "source": _is_text, "smallest": _is_number, "withdrawn": _is_text, "expected": [_BOUND]}],
    }},
    "timed": {
        "setting": SETTING | {"impl": _is_text},
        "values": dict.fromkeys(("ms", "low_ms", "high_ms", "baseline_ms", "rounds"), _above_0) | {"peak_bytes": _is_number},
    },
}  # fmt: skip
"""Of each kind of row, what its free fields hold: a test, {name: of each}, [of all] or (of each place)."""


def _unlike(value: Any, of: Any, name: str) -> str | None:
    """Where a value is not as it must be, or None."""
    if callable(of):
        return None if of(value) else name
    if isinstance(of, dict):
        if not isinstance(value, dict):
            return name
        parts = [(value.get(key, ...), one, f"{name}.{key}") for key, one in of.items()]
    elif not isinstance(value, list) or (isinstance(of, tuple) and len(value) != len(of)):
        return name
    elif isinstance(of, tuple):
        parts = [(v, one, name) for v, one in zip(value, of, strict=True)]
    else:
        parts = [(v, of[0], name) for v in value]
    return next((wrong for part in parts if (wrong := _unlike(*part)) is not None), None)


def _check_names(config: Mapping[str, Any]) -> None:
    """Columns are of a known kind, and all that names one names one of them."""
    columns = {column["name"]: column for column in config["columns"]}
    trained = any(column["kind"] == "trained" for column in columns.values())
    expected = [one for claim in config["claims"] for one in claim["expected"]]
    bounded = {bound["column"] for one in expected for bound in (one, *one["when"])}
    bounded -= {""} if trained else set()
    wrong = (
        [
            name
            for name, one in columns.items()
            if _unlike(one, _COLUMNS.get(one["kind"], _never), "")
        ]
        or (bounded | {line[1] for line in config["cells"]}) - columns.keys()
        or len(config["lines"]) != 2 * trained
    )
    if wrong:
        raise ValueError(f"config names columns or lines that it has not: {_said(wrong)}")


def _said(value: object) -> str:
    text = visible(repr(value))
    return text if len(text) <= 60 else f"{text[:60]}…"


def canonical(content: Any) -> str:
    """JSON with sorted keys and no spaces. NaN is refused."""
    return json.dumps(
        content, sort_keys=True, separators=(",", ":"), allow_nan=False, default=_jsonable
    )


def _jsonable(value: Any) -> Any:
    if hasattr(value, "__dataclass_fields__") and not isinstance(value, type):
        return {one.name: getattr(value, one.name) for one in fields(value)}
    if isinstance(value, set | frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return str(value)  # paths, types of tensors


def as_json(value: Any) -> Any:
    """The value as JSON has it: dataclasses as their fields, classes by their names, tuples as lists, what is not finite as null."""
    return json.loads(json.dumps(value, default=_jsonable), parse_constant=lambda _: None)
