"""What an annotation says of an option: the values that it takes, and how an error spells them."""

import inspect
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import is_dataclass
from functools import cache
from types import NoneType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from jaxtyping import jaxtyped
from torch import Tensor

from regard.core.shapes import LARGEST, is_dense


class Range(NamedTuple):
    """Numbers that are allowed, both ends included, and how an error spells them. NaN is in no range."""

    low: float
    high: float
    words: str


SIZE = Range(1, LARGEST, "a positive integer")
WIDEST = 3.4e38  # what float32 holds
WORD = 2**63  # beyond what a tensor's whole numbers hold
FINITE = Range(-WIDEST, WIDEST, "a finite number")


def configuration(entry: Any) -> Any:
    """The class of a model's configuration, whose fields are its options; anything else as it is."""
    if not inspect.isclass(entry) or is_dataclass(entry):
        return entry
    taken = get_type_hints(entry.__init__)
    return taken["config"] if set(taken) - {"return"} == {"config"} else entry


@cache
def annotations(function: Callable) -> dict[str, Any]:
    """Type of each argument, where it is known: a name that only type checkers see is not."""
    found: Any = {}
    space = getattr(function, "__globals__", None)
    for name, kind in getattr(function, "__annotations__", {}).items():
        with suppress(NameError):
            one = SimpleNamespace(__annotations__={name: kind})
            found |= get_type_hints(one, space, include_extras=True)
    return found


def fits(kind: Any, value: object) -> bool:
    """True if the value is of the annotated type; annotations that are not understood fit everything."""
    return _values(kind).hold(value)


def spelled(kind: Any) -> str:
    """The values of an annotation, as the end of "must be ..."."""
    return _values(kind).words


class _Values(NamedTuple):
    words: str
    hold: Callable[[Any], bool]


def _values(kind: Any) -> _Values:
    kind = getattr(kind, "__bound__", kind) or Any  # a type variable's
    origin, inner = get_origin(kind), get_args(kind)
    if kind in (int, float):
        return _numbers(kind, SIZE if kind is int else FINITE)
    if origin is Annotated:
        ranges = [note for note in inner[1:] if isinstance(note, Range)]
        return _numbers(inner[0], ranges[0]) if ranges else _values(inner[0])
    if origin in (Union, UnionType):
        members = [_values(member) for member in inner]
        words = [member.words for member in members]
        either = f"{', '.join(words[:-1])} or {words[-1]}"
        return _Values(either, lambda value: any(member.hold(value) for member in members))
    if origin is Literal:
        choices = ("one of " if len(inner) > 1 else "") + ", ".join(map(repr, inner))
        pairs = [(type(choice), choice) for choice in inner]
        return _Values(choices, lambda value: (type(value), value) in pairs)
    if origin is type and isinstance(base := inner[0], type):
        subclass = f"a subclass of {base.__name__}"
        return _Values(subclass, lambda value: isinstance(value, type) and issubclass(value, base))
    if Callable in (origin, kind):
        return _Values("a function", callable)
    ours = getattr(origin, "__module__", None) in ("builtins", "collections.abc")
    if ours and issubclass(origin, Iterable):
        return _several(origin, inner)
    return _tensors(kind) if hasattr(kind, "array_type") else _plain(origin or kind)


def _numbers(kind: type, allowed: Range) -> _Values:
    types = int if kind is int else int | float

    def hold(value: Any) -> bool:
        number = isinstance(value, types) and not isinstance(value, bool)
        if not number or not allowed.low <= value <= allowed.high:
            return False
        return isinstance(value, float) or -WORD <= value < WORD

    return _Values(allowed.words, hold)


def _several(origin: type, inner: tuple) -> _Values:
    """Tuples, mappings and sequences; sizes of an item are its own, except in a tuple of a given length."""
    words = [spelled(kind) for kind in inner if kind is not Ellipsis]
    if origin is tuple and Ellipsis not in inner:
        return _Values(
            f"a tuple ({', '.join(words)})",
            lambda value: (
                isinstance(value, tuple)
                and len(value) == len(inner)
                and all(map(fits, inner, value))
            ),
        )
    if issubclass(origin, Mapping):
        key, kind = inner
        told = "option names" if kind in (Any, object) else f"names to {_plural(words[1])}"
        return _Values(
            f"a mapping of {told}",
            lambda value: (
                isinstance(value, Mapping)
                and all(fits(key, name) and _alone(kind, item) for name, item in value.items())
            ),
        )

    def hold(value: Any) -> bool:
        if not isinstance(value, origin) or isinstance(value, str | bytes | Tensor):
            return False
        return not isinstance(value, Collection) or all(_alone(inner[0], item) for item in value)

    return _Values(f"a {'tuple' if origin is tuple else 'sequence'} of {_plural(words[0])}", hold)


def _alone(kind: Any, value: object) -> bool:
    with jaxtyped("context"):
        return fits(kind, value)


def _tensors(kind: Any) -> _Values:
    values = kind.__name__.partition("[")[0].lower()

    def hold(value: Any) -> bool:
        dense = is_dense(value) and not value.is_meta
        return dense and value.numel() > 0 and isinstance(value, kind)

    return _Values(
        f"a dense {values} tensor [{kind.dim_str}] with values (a letter is one size in all of them)",
        hold,
    )


def _plain(kind: Any) -> _Values:
    word = str(getattr(kind, "__name__", kind))
    simple = {bool: "True or False", str: "a name", NoneType: "None"}
    words = simple.get(kind) or f"{'an' if word[0] in 'AEIOU' else 'a'} {word}"
    known = isinstance(kind, type) and kind is not Any
    return _Values(words, lambda value: not known or isinstance(value, kind))


def _plural(words: str) -> str:
    """`a positive integer` -> `positive integers`; of several alternatives, each as it is."""
    if " tensor [" in words:
        return words.partition(" ")[2].replace(" tensor [", " tensors [")
    article, _, rest = words.partition(" ")
    noun, inner = rest.partition(" (")[::2] if rest.endswith(")") else (rest, "")
    simple = article in ("a", "an") and " or " not in noun and " of " not in noun
    return f"{noun}s{inner and f' ({inner}'}" if simple else words
