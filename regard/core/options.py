"""Options are checked against their annotations, in one place: here, before a constructor runs.

`class Heads(CheckedModule)`, `class Layer(metaclass=CheckedOptions)`: whatever is made from options has this metaclass. The annotation of an
argument says which values it takes, and ranges are part of it:

    int  1 .. 2^31 - 1    Count  0 ..         Depth  layers         Seed  0 .. 2^63 - 1    Whole  either sign
    float  finite         Rate  0 <= r < 1    Share  0 <= r <= 1    Above0, Below0         Bound  infinity too
"""

import inspect
from abc import ABCMeta
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import FrozenInstanceError, dataclass, field
from functools import wraps
from math import inf, nextafter
from types import MappingProxyType, MethodType
from typing import Annotated, Any, TypeVar, cast, dataclass_transform

from jaxtyping import jaxtyped
from torch import Tensor
from torch.compiler import is_compiling
from torch.nn import Module
from torch.utils._pytree import tree_leaves

from regard.core.annotations import WIDEST, Range, annotations, fits, spelled
from regard.core.errors import OptionError, ShapeError, UnknownNameError, shown, suggestion
from regard.core.memory import require_room
from regard.core.shapes import LARGEST

ABOVE_0, BELOW_1 = nextafter(0, 1), nextafter(1, 0)

Count = Annotated[int, Range(0, LARGEST, "an integer of at least 0")]
Depth = Annotated[int, Range(1, 10_000, "a positive integer")]
Whole = Annotated[int, Range(-LARGEST, LARGEST, "an integer")]
Seed = Annotated[int, Range(0, 2**63 - 1, "an integer of at least 0")]
Rate = Annotated[float, Range(0, BELOW_1, "at least 0 and below 1")]
Above0 = Annotated[float, Range(ABOVE_0, WIDEST, "greater than 0")]
Below0 = Annotated[float, Range(-WIDEST, -ABOVE_0, "below 0")]
Part = Annotated[float, Range(ABOVE_0, 1, "above 0 and at most 1")]
Share = Annotated[float, Range(0, 1, "from 0 to 1")]
Bound = Annotated[float, Range(-inf, inf, "a number")]

Options = Mapping[str, Any]
"""Options by name."""

Made = TypeVar("Made")


class CheckedOptions(ABCMeta):
    """Metaclass of what is made from options. Raises OptionError, UnknownNameError before `__init__` runs.

    What `__init__` would allocate is compared with the memory that is free.
    """

    @property
    def __signature__(cls) -> inspect.Signature:
        """The signature of `__init__`, without self: what a reader can pass."""
        return inspect.signature(MethodType(cls.__init__, cls))  # type: ignore[misc]  # of this class

    def __call__(cls: type[Made], *args: Any, **kwargs: Any) -> Made:
        name = getattr(cls, "name", None)
        who = name if isinstance(name, str) else cls.__name__
        if lacks := sorted(cls.__abstractmethods__):  # type: ignore[attr-defined]
            raise OptionError(f"{cls.__name__} has no {lacks[0]}: declare it in the class")
        check_call(who, inspect.signature(cls), cls.__init__, args, kwargs)
        if issubclass(cls, Module):
            require_room(who, lambda: type.__call__(cls, *args, **kwargs), {**kwargs, "": args})
        made = type.__call__(cls, *args, **kwargs)
        if issubclass(cls, Module) and "_modules" not in vars(made):
            raise OptionError(f"{who}: __init__ does not call super().__init__")
        return made


@dataclass_transform(frozen_default=True, kw_only_default=True, field_specifiers=(field,))
class Declared(metaclass=CheckedOptions):
    """Base of what its fields declare: it makes the subclass a frozen dataclass, whose fields are passed by name.

    `@dataclass(frozen=True)` above the subclass changes nothing.
    """

    def __init_subclass__(cls):
        dataclass(frozen=True, kw_only=True)(cls)
        del cls.__setattr__, cls.__delattr__  # which dataclass would refuse to make twice

    def __setattr__(self, name: str, value: object):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")

    def __delattr__(self, name: str):
        raise FrozenInstanceError(f"cannot delete field {name!r}")


LONGEST = 80
"""Characters of an option's value in print."""


class CheckedModule(Module, metaclass=CheckedOptions):
    """Base of modules that are made from options."""


class Recorded(CheckedModule):
    """Base of modules that record their options, and print those that are not at their default."""

    options: Options = MappingProxyType({})  # the constructor's, defaults included

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
    who: str, signature: inspect.Signature, function: Callable, args: Sequence, kwargs: Options
) -> None:
    """Every argument has a parameter, every parameter without a default an argument, and every value its type."""
    parameters = signature.parameters.items()
    named = {name: p for name, p in parameters if p.kind not in VARIADIC}
    unknown = [name for name in kwargs if name not in named]
    if unknown and not any(p.kind is p.VAR_KEYWORD for _, p in parameters):
        raise UnknownNameError(f"option of {who}", unknown[0], [k for k in named if k != "dim"])
    try:
        given = signature.bind_partial(*args, **kwargs).arguments
    except TypeError as error:
        raise OptionError(f"{who}: {error}. Pass options by name.") from None
    missing = [k for k, p in named.items() if p.default is p.empty and k not in given]
    if missing:
        raise OptionError(
            f"{who} needs {' and '.join(missing)}: pass {', '.join(f'{m}=' for m in missing)}"
        )
    types = annotations(function)
    for name, value in given.items():
        if name in types and name in named:
            check_option(who, name, value, types[name])


def check_calls(namespace: dict[str, Any], names: Iterable[str], *, counts: bool = False) -> None:
    """The functions of these names check their arguments as constructors do. For a package's public names, which no forward passes.

    >>> check_calls(globals(), __all__)
    """
    for name in names:
        if inspect.isfunction(function := namespace.get(name)):
            namespace[name] = checked(function, counts=counts)


Function = TypeVar("Function", bound=Callable)


def checked(
    function: Function,
    also: Callable[[dict[str, Any], list[Tensor]], None] | None = None,
    *,
    counts: bool = False,
) -> Function:
    """The function, or a method that no other class calls in a loop, with its arguments checked as a constructor's are.

    Not while it is compiled. counts: nor where all tensors are on the meta device, whose operations can be counted.
    also: a further check, of all arguments and of the tensors among them.
    """
    signature = inspect.signature(function)

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_compiling():
            return function(*args, **kwargs)
        tensors = [z for z in tree_leaves((args, kwargs)) if isinstance(z, Tensor)]
        if not (counts and tensors and all(z.is_meta for z in tensors)):
            with jaxtyped("context"):  # a letter is one size in all arguments
                check_call(function.__qualname__, signature, function, args, kwargs)
                if also is not None:
                    given = signature.bind(*args, **kwargs)
                    given.apply_defaults()
                    also(given.arguments, tensors)
        return function(*args, **kwargs)

    return cast(Function, call)


VARIADIC = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def check_option(who: str, name: str, value: object, kind: Any) -> None:
    """Raise OptionError (ShapeError of a tensor), naming the option, the value and what it must be, unless the value is of this type.

    >>> check_option("softmax", "bias", "zz", bool)   # softmax: bias ('zz') must be True or False
    """
    if fits(kind, value):
        return
    wanted = spelled(kind)
    text = f"{who}: {name} ({shown(value)}) must be {wanted}"
    choices = wanted.split("'")[1::2]
    if isinstance(value, str) and (near := suggestion(value, choices, otherwise="")):
        text += f". {near}"
    if isinstance(value, int) and value > LARGEST:
        text += f" of at most {LARGEST}"
    raise (ShapeError if " tensor" in wanted else OptionError)(text)
