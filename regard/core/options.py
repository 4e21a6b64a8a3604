"""Options are checked against their annotations, in one place: here, before a constructor runs.

`class Mixer(nn.Module, metaclass=CheckedOptions)`: whatever is made from options has this metaclass. The annotation of an
argument says which values it takes, and ranges are part of it:

    int  1 .. 2^31 - 1    Count  0 ..         Depth  layers         Seed  0 .. 2^63 - 1    Whole  either sign
    float  finite         Rate  0 <= r < 1    Share  0 <= r <= 1    Above0                 Bound  infinity too
"""

import inspect
from abc import ABCMeta
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, wraps
from math import inf
from types import MappingProxyType, SimpleNamespace, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from jaxtyping import jaxtyped
from torch import Tensor
from torch.nn import Module

from regard.core.errors import OptionError, ShapeError, UnknownNameError, shown, suggestion
from regard.core.memory import require_room
from regard.core.shapes import LARGEST, is_dense


@dataclass(frozen=True)
class Range:
    """Numbers that are allowed, and how an error spells them."""

    low: float
    high: float
    words: str
    open_low: bool = False
    open_high: bool = False

    def holds(self, number: float) -> bool:
        """NaN is in no range."""
        above = number > self.low if self.open_low else number >= self.low
        return above and (number < self.high if self.open_high else number <= self.high)


SIZE = Range(1, LARGEST, "a positive integer")
WIDEST = 3.4e38  # what float32 holds
FINITE = Range(-WIDEST, WIDEST, "a finite number")

Count = Annotated[int, Range(0, LARGEST, "an integer of at least 0")]
Depth = Annotated[int, Range(1, 10_000, "a positive integer")]
Whole = Annotated[int, Range(-LARGEST, LARGEST, "an integer")]
Seed = Annotated[int, Range(0, 2**63 - 1, "an integer of at least 0")]
Rate = Annotated[float, Range(0, 1, "at least 0 and below 1", open_high=True)]
Above0 = Annotated[float, Range(0, WIDEST, "greater than 0", open_low=True)]
Share = Annotated[float, Range(0, 1, "from 0 to 1")]
Bound = Annotated[float, Range(-inf, inf, "a number")]

Made = TypeVar("Made")


class CheckedOptions(ABCMeta):
    """Metaclass of what is made from options. Raises OptionError, UnknownNameError before `__init__` runs.

    What `__init__` would allocate is compared with the memory that is free.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """That of `__init__`, without self: what a reader can pass."""
        whole = inspect.signature(cls.__init__)  # type: ignore[misc]  # of this class, not of a subclass
        return whole.replace(parameters=list(whole.parameters.values())[1:])

    def __call__(cls: type[Made], *args: Any, **kwargs: Any) -> Made:
        name = getattr(cls, "name", None)
        who = name if isinstance(name, str) else cls.__name__
        check_call(who, inspect.signature(cls), cls.__init__, args, kwargs)
        if issubclass(cls, Module):
            require_room(who, lambda: type.__call__(cls, *args, **kwargs), {**kwargs, "": args})
        return type.__call__(cls, *args, **kwargs)


LONGEST = 80
"""Characters of an option's value in print."""


class Recorded(Module, metaclass=CheckedOptions):
    """Base of modules that record their options, and print those that are not at their default."""

    options: Mapping[str, Any] = MappingProxyType({})  # the constructor's, defaults included

    def __new__(cls, *args: Any, **kwargs: Any):
        made = super().__new__(cls)
        if args or kwargs:  # absent when a copy or a pickle is being restored
            bound = inspect.signature(cls).bind_partial(*args, **kwargs)
            bound.apply_defaults()
            object.__setattr__(made, "options", dict(bound.arguments))
        return made

    def extra_repr(self) -> str:
        known = inspect.signature(type(self)).parameters
        told = {name: _short(value) for name, value in self.options.items()}
        return ", ".join(
            f"{name}={text}" for name, text in told.items() if text != _short(known[name].default)
        )


def _short(value: object) -> str:
    """A value in print: a function or a class by its name, a module by its class, and no long text."""
    if isinstance(value, Module):
        return f"{type(value).__name__}(...)"
    text = str(getattr(value, "__name__", None) or shown(value))
    return text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."


def tuples(value: Any) -> Any:
    """The value as options have it: JSON has lists where they have tuples."""
    if isinstance(value, list | tuple):
        return tuple(map(tuples, value))
    return {key: tuples(one) for key, one in value.items()} if isinstance(value, Mapping) else value


def check_call(
    who: str,
    signature: inspect.Signature,
    function: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
) -> None:
    """Every argument has a parameter, every parameter without a default an argument, and every value its type."""
    parameters = signature.parameters
    named = {name for name, p in parameters.items() if p.kind not in VARIADIC}
    if not any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        for name in kwargs:
            if name not in named:
                raise UnknownNameError(
                    f"option of {who}", name, [k for k in parameters if k in named - {"dim"}]
                )
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError as error:
        raise OptionError(f"{who}: {error}. Pass options by name.") from None
    required = [k for k in parameters if k in named and parameters[k].default is inspect._empty]
    if missing := [name for name in required if name not in given]:
        raise OptionError(
            f"{who} needs {' and '.join(missing)}: pass {', '.join(f'{m}=' for m in missing)}"
        )
    types = annotations(function)
    for name, value in given.items():
        if name in types and name in named:
            check_option(who, name, value, types[name])


def check_calls(namespace: dict[str, Any], names: Sequence[str]) -> None:
    """The functions of these names check their arguments as constructors do. For a package's public names, which no forward passes.

    >>> check_calls(globals(), __all__)
    """
    for name in names:
        if inspect.isfunction(function := namespace.get(name)):
            namespace[name] = _checked(function)


def _checked(function: Callable[..., Any]) -> Callable[..., Any]:
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        with jaxtyped("context"):  # a letter is one size in all arguments
            check_call(function.__name__, signature, function, args, kwargs)
        return function(*args, **kwargs)

    return call


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


@cache
def annotations(function: Callable[..., Any]) -> dict[str, Any]:
    """Type of each argument, where it is known: a name that only type checkers see is not."""
    own = getattr(function, "__annotations__", {})
    found: dict[str, Any] = {}
    for name, kind in own.items():
        with suppress(NameError):
            one = SimpleNamespace(__annotations__={name: kind})
            space = getattr(function, "__globals__", None)
            found |= get_type_hints(one, space, include_extras=True)
    return found


def check_option(who: str, name: str, value: object, kind: Any) -> None:
    """Raise OptionError (ShapeError of a tensor), naming the option, the value and what it must be, unless the value is of this type.

    >>> check_option("softmax", "bias", "zz", bool)   # softmax: bias ('zz') must be True or False
    """
    if fits(kind, value):
        return
    wanted = spelled(kind)
    text = f"{who}: {name} ({shown(value)}) must be {wanted}"
    choices = [
        c for member in _members(kind) if get_origin(member) is Literal for c in get_args(member)
    ]
    if isinstance(value, str) and (near := suggestion(value, map(str, choices), otherwise="")):
        text += f". {near}"
    if isinstance(value, int) and value > LARGEST:
        text += f" of at most {LARGEST}"
    raise (ShapeError if " tensor" in wanted else OptionError)(text)


def fits(kind: Any, value: object) -> bool:
    """True if the value is of the annotated type; annotations that are not understood fit everything."""
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        ranges = [note for note in notes if isinstance(note, Range)]
        if not ranges:
            return fits(inner, value)
        return _number(inner, value) and all(r.holds(value) for r in ranges)  # type: ignore[arg-type]
    if kind in (int, float):
        return _number(kind, value) and (SIZE if kind is int else FINITE).holds(value)  # type: ignore[arg-type]
    if kind is Any:
        return True
    if kind is None or kind is type(None):
        return value is None
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return any(fits(member, value) for member in arguments)
    if origin is Literal:
        return any(type(value) is type(choice) and value == choice for choice in arguments)
    if origin is type:
        return isinstance(value, type) and _is_subclass(value, arguments[0])
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        items: tuple[object, ...] = value
        if len(arguments) == 2 and arguments[1] is Ellipsis:
            return all(fits(arguments[0], item) for item in items)
        return len(items) == len(arguments) and all(map(fits, arguments, items))
    if origin is Callable or (origin is not None and origin.__name__ == "Callable"):
        return callable(value)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return isinstance(value, Mapping) and all(
            fits(arguments[0], key) and _alone(arguments[1], item) for key, item in value.items()
        )
    if isinstance(origin, type) and issubclass(origin, Iterable):
        if not isinstance(value, origin) or isinstance(value, str | bytes | Tensor):
            return False
        return not isinstance(value, Collection) or all(
            _alone(arguments[0], item) for item in value
        )
    if hasattr(kind, "array_type"):
        if not isinstance(value, Tensor) or not is_dense(value) or value.is_meta:
            return False
        return value.numel() > 0 and isinstance(value, kind)
    return isinstance(value, kind) if isinstance(kind, type) else True


def _alone(kind: Any, value: object) -> bool:
    """An item's sizes are its own."""
    with jaxtyped("context"):
        return fits(kind, value)


def spelled(kind: Any) -> str:
    """The values of an annotation, as the end of "must be ..."."""
    if get_origin(kind) is Annotated:
        inner, *notes = get_args(kind)
        words = next((note.words for note in notes if isinstance(note, Range)), None)
        return words or spelled(inner)
    simple = {int: SIZE.words, float: FINITE.words, bool: "True or False", str: "a name"}
    if kind in simple:
        return simple[kind]
    if kind is None or kind is type(None):
        return "None"
    if hasattr(kind, "array_type"):
        values = kind.__name__.partition("[")[0].lower()
        return f"a dense {values} tensor [{kind.dim_str}] with values (a letter is one size in all of them)"
    origin, arguments = get_origin(kind), get_args(kind)
    if origin in (Union, UnionType):
        return _either([spelled(member) for member in arguments])
    if origin is Literal:
        return ("one of " if len(arguments) > 1 else "") + ", ".join(map(repr, arguments))
    if origin is type:
        return f"a subclass of {getattr(arguments[0], '__name__', arguments[0])}"
    if origin is tuple and arguments[1:] != (Ellipsis,):
        return f"a tuple ({', '.join(map(spelled, arguments))})"
    if isinstance(origin, type) and issubclass(origin, Mapping):
        named = arguments[1:] in ((), (Any,), (object,))
        return f"a mapping of {'option names' if named else f'names to {_plural(spelled(arguments[1]))}'}"
    if isinstance(origin, type) and issubclass(origin, Iterable):
        each = _plural(spelled(arguments[0]))
        return f"a {'tuple' if origin is tuple else 'sequence'} of {each}"
    if origin is not None:
        return "a function"
    word = str(getattr(kind, "__name__", kind))
    return f"{'an' if word[0] in 'AEIOU' else 'a'} {word}"


def _number(kind: type, value: object) -> bool:
    return isinstance(value, int if kind is int else int | float) and not isinstance(value, bool)


def _is_subclass(value: type, base: Any) -> bool:
    return issubclass(value, base) if isinstance(base, type) else True


def _members(kind: Any) -> tuple[Any, ...]:
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _either(words: list[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} or {words[-1]}"


def _plural(words: str) -> str:
    """`a positive integer` -> `positive integers`; of several alternatives, each as it is."""
    if " tensor [" in words:
        return words.partition(" ")[2].replace(" tensor [", " tensors [")
    article, _, rest = words.partition(" ")
    noun, inner = rest.partition(" (")[::2] if rest.endswith(")") else (rest, "")
    simple = article in ("a", "an") and " or " not in noun and " of " not in noun
    return f"{noun}s{inner and f' ({inner}'}" if simple else words
