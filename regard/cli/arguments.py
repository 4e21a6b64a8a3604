"""Command-line arguments for typed configurations, beyond what tyro knows: mixers by name, options as NAME=VALUE."""

import ast
from collections.abc import Callable, Mapping
from typing import Any, get_args, get_origin

import tyro
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from regard.core import OptionError


def parse(command: Callable[..., int], prog: str, args: list[str]) -> int:
    """Call `command` with its parameters, and the fields of the configurations among them, read from `args`."""
    registry = ConstructorRegistry()
    registry.primitive_rule(_name_rule)
    registry.primitive_rule(_options_rule)
    with registry:
        return tyro.cli(command, prog=prog, args=args, config=(tyro.conf.AvoidSubcommands,))


def _name_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """`str | type[Mixer]`, and a tuple of Layers beside them: on a command line, a name."""
    members = get_args(info.type)
    if str not in members or not any(get_origin(member) is type for member in members):
        return None
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME",
        instance_from_str=lambda words: words[0],
        is_instance=lambda value: isinstance(value, str | type | tuple),
        str_from_instance=lambda value: [_mixer_name(value)],
    )


def _mixer_name(value: Any) -> str:
    if isinstance(value, tuple):  # of Layers
        return ",".join(_mixer_name(layer.mixer) for layer in value)
    return getattr(value, "name", value)


def _options_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Mappings: `--model.mixer-options window_size=16 shared_qk=True`."""
    if get_origin(info.type) is not Mapping:
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=VALUE ...]",
        instance_from_str=lambda words: dict(map(option, words)),
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda value: [f"{name}={item}" for name, item in value.items()],
    )


def option(word: str) -> tuple[str, Any]:
    """A Python literal where the value is one, and text otherwise."""
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise OptionError(f"options are written NAME=VALUE, got {word!r}")
    try:
        return name, ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return name, value
