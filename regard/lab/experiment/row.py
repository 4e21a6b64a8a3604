"""Row: one result, as the ledger keeps it and pages draw it; every field is read as its declared type, or refused."""

import json
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields
from functools import partial
from typing import Any, Literal

from regard.core import shown, visible
from regard.lab.experiment.stored import (
    AskedQuestion,
    Better,
    Facts,
    Figures,
    Setting,
    hints,
    holds,
)


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

    @property
    def machine(self) -> str:
        """What timings must share to be compared: the device, and an allocator that is not the system's."""
        plain = self.allocator in ("unknown", "default")
        return self.device if plain else f"{self.device}, {self.allocator}"


@dataclass(frozen=True, kw_only=True)
class Row:
    """What one entry of a question came to in one column, from one seed at one rate; or why there is nothing.

    kind: "trained"; "timed", whose setting (length, batch ...) is in `setting`; "laws", of a mechanism, whose `reason` is the law
    that it breaks; "asked", a question as it stood, in `config`. cell: what the result is of, seed and rate apart; rows of unlike
    cells never meet in a mean, an interval or a curve.
    """

    kind: Literal["trained", "timed", "laws", "asked"]
    question: str  # by which it was first asked
    column: str
    entry: str  # label
    cell: str
    source: str  # of the code
    provenance: Provenance
    mixer: str = ""  # name of the catalogue, or module:Class
    options: Facts = field(default_factory=dict)
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
    setting: Facts = field(default_factory=dict)
    config: Facts = field(default_factory=dict)  # task, model and training
    reason: str | None = None  # why there is no value

    @property
    def engine(self) -> tuple[str, str]:
        """Versions on which a result depends; torch's without its build, which goes with the device."""
        versions = self.provenance.versions
        return versions.get("regard", "unknown"), versions.get("torch", "unknown").partition("+")[0]

    @property
    def ratio(self) -> float:
        """Time of what was timed relative to fused softmax attention: below 1 is faster."""
        return self.values["ms"] / self.values["baseline_ms"]


_SIGNED = {"value", "valid_value", "chance", "rate"}  # everything else counts from zero
_INSIDE: dict[str, Facts] = {
    "asked": {"config": AskedQuestion},
    "timed": {"setting": Setting, "values": Figures},
}


def read_row(values: object) -> Row:
    """The row with these values, or ValueError that names the field and what it must hold."""
    row = _made(Row, values)
    for field_name, of in _INSIDE.get(row.kind, {}).items():
        held = getattr(row, field_name)
        for name, hint in hints(of).items():
            if not holds(hint, held.get(name, ...)):
                raise ValueError(f"{field_name}.{name} is not as a row of kind {row.kind} has it")
    if row.kind == "asked":
        _check_names(row.config)
    return row


def _made(cls: Any, values: object) -> Any:
    if not isinstance(values, dict):
        raise ValueError(f"a row must be an object, got {shown(values)}")
    if strange := sorted(visible(str(name)) for name in values.keys() - hints(cls).keys()):
        raise ValueError(f"unknown fields: {', '.join(strange)[:200]}")
    if missing := [name for name in _required(cls) if name not in values]:
        raise ValueError(f"missing fields: {', '.join(missing)}")
    made = dict(values)
    for name, value in values.items():
        hint = hints(cls)[name]
        if hint is Provenance:
            made[name] = _made(Provenance, value)
            continue
        below = isinstance(value, int | float) and value < 0 and name not in _SIGNED
        if below or not holds(hint, value):
            kind = hint.__name__ if isinstance(hint, type) else hint
            raise ValueError(f"{name} must hold {kind}, within bounds, got {shown(value)}")
        if name == "curve":
            made[name] = [tuple(point) for point in value]
    return cls(**made)


def _required(cls: Any) -> list[str]:
    return [f.name for f in fields(cls) if f.default is MISSING and f.default_factory is MISSING]


def plain(row: Row) -> Facts:
    """The row as JSON values, without the fields that hold what they hold by default; read_row reads it back."""
    required = {name: getattr(row, name) for name in _required(Row)}
    empty = vars(Row(**required))
    return {k: v for k, v in asdict(row).items() if k in required or v != empty[k]}


def _check_names(config: Facts) -> None:
    """All that names a column or a line names one of the question's."""
    kinds = {column["name"]: column["kind"] for column in config["columns"]}
    trained = "trained" in kinds.values()
    bounded = {one["column"] for claim in config["claims"] for one in claim["expected"]}
    if trained:
        bounded.discard("")
    wrong = (bounded | {line[1] for line in config["cells"]}) - kinds.keys()
    if wrong or len(config["lines"]) != 2 * trained:
        raise ValueError(f"config names columns or lines that it has not: {shown(wrong)}")


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
    if isinstance(value, partial):
        return [value.func, value.args, value.keywords]
    if isinstance(value, type) or callable(value):
        return f"{value.__module__}:{value.__qualname__}"
    return str(value)  # paths, types of tensors


def as_json(value: Any) -> Any:
    """The value as JSON has it: dataclasses as their fields, classes by their names, tuples as lists, what is not finite as null."""
    return json.loads(json.dumps(value, default=_jsonable), parse_constant=lambda _: None)
