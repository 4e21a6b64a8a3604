"""What the free fields of a stored row hold, as types, and the test of a JSON value against a type.

Nothing that was received is ever more than text, a number within bounds, or a short list of such.
"""

from functools import cache
from types import NoneType
from typing import (
    Annotated,
    Any,
    Literal,
    TypedDict,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

from regard.core import is_whole

Facts = dict[str, Any]
LONGEST_TEXT = 20_000  # characters
LONGEST_LIST = 200_000
LARGEST_NUMBER = 1e100  # sums and products of such stay finite
LARGEST_WHOLE = 2**63
DEEPEST = 10  # lists within lists of an option
Better = Literal["higher", "lower"]
Pass = Literal["forward", "train", "prefill", "decode"]
Type = Literal["float32", "bfloat16", "float16", "float64"]
"""The numbers that a pass is timed in."""
Unit = Literal["block", "layer"]
"""The timed unit: mechanism and feed-forward layer at equal parameters, or the bare layer."""
Size = Annotated[int, "above 0"]
Figure = Annotated[float, "above 0"]


class Place(TypedDict):
    """What a timing's row and its column both say."""

    kind: Pass
    unit: Unit
    length: Size
    batch: Size
    dim: Size
    num_heads: Size


class Setting(Place):
    impl: str  # what computed, where a mechanism has implementations to choose from


class Figures(TypedDict):
    """What was measured of a pass, beside fused softmax of the same causality in the same interleaved run.

    A row may hold more: matrix_rate, operations a second of a large matrix product in the same run; baseline_parameters, softmax's;
    state_bytes, of a row's state after `length` tokens, where the mechanism streams.
    """

    ms: Figure  # median
    low_ms: Figure  # quartiles
    high_ms: Figure
    baseline_ms: Figure  # median of softmax
    rounds: Figure
    peak_bytes: float  # live tensor bytes at the highest point, beyond parameters and input; decode: with the state


class _TimedColumn(TypedDict):
    name: str
    kind: Literal["timed"]
    setting: Place


class _TrainedColumn(TypedDict):
    name: str
    kind: Literal["trained"]
    task: str
    metric: str
    better: Better
    length: int
    causal: bool
    later: bool
    steps: int | None
    tokens: int | None
    batch: int
    shell: Facts


class _Entry(TypedDict):
    label: str
    mixer: str
    options: Facts
    source: str


class _Expected(TypedDict):
    of: str
    beside: str | None
    column: str
    measure: str | None
    least: float | None
    most: float | None


class _Claim(TypedDict):
    text: str
    source: str
    smallest: float
    withdrawn: str
    expected: list[_Expected]


class AskedQuestion(TypedDict):
    name: str
    about: str
    kind: Literal["screen", "comparison"]
    limits: list[str]
    baseline: str
    mark: float
    seeds: list[int]
    rates: list[Figure]
    entries: list[_Entry]
    lines: list[str]
    columns: list[_TrainedColumn | _TimedColumn]
    laws: dict[str, str]
    cells: list[tuple[str, str, str, bool | None, str | None, float | None]]
    claims: list[_Claim]


def _is_text(value: object) -> bool:
    return isinstance(value, str) and len(value) <= LONGEST_TEXT and is_whole(value)


def _is_whole(value: object) -> bool:
    return type(value) is int and -LARGEST_WHOLE <= value <= LARGEST_WHOLE


def _is_number(value: object) -> bool:
    return abs(value) <= LARGEST_NUMBER if type(value) is float else _is_whole(value)


def _is_option(value: object, depth: int = DEEPEST) -> bool:
    if isinstance(value, dict):
        if not all(map(_is_text, value)):
            return False
        value = [*value.values()]
    if isinstance(value, list | tuple):
        short = depth > 0 and len(value) <= LONGEST_LIST
        return short and all(_is_option(item, depth - 1) for item in value)
    return value is None or isinstance(value, bool) or _is_text(value) or _is_number(value)


_PLAIN = {
    str: _is_text,
    int: _is_whole,
    float: _is_number,
    bool: lambda value: isinstance(value, bool),
    NoneType: lambda value: value is None,
    Any: _is_option,
}


def holds(hint: Any, value: Any) -> bool:
    """True if a value is as JSON holds this type, within bounds; an object of a TypedDict may hold more."""
    if hint in _PLAIN:
        return _PLAIN[hint](value)
    origin = get_origin(hint)
    inside = get_args(hint)
    if origin is Literal:
        return value in inside
    if origin is Annotated:
        return holds(inside[0], value) and value > 0
    if is_typeddict(hint):
        return isinstance(value, dict) and all(
            holds(of, value.get(name, ...)) for name, of in hints(hint).items()
        )
    if origin is dict:
        return isinstance(value, dict) and all(
            all(map(holds, inside, one)) for one in value.items()
        )
    if origin is list:
        short = isinstance(value, list) and len(value) <= LONGEST_LIST
        return short and all(holds(inside[0], one) for one in value)
    if origin is tuple:
        whole = isinstance(value, list | tuple) and len(value) == len(inside)
        return whole and all(map(holds, inside, value))
    return any(holds(one, value) for one in inside)  # one of several


@cache
def hints(cls: Any) -> Facts:
    return get_type_hints(cls, include_extras=True)


SETTING = tuple(hints(Place))
