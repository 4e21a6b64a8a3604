"""Command-line arguments for typed configurations, beyond what tyro knows: mixers by name, options as NAME=VALUE."""

import ast
import io
import os
import re
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import redirect_stderr
from decimal import Decimal
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import tyro
from tyro.conf import FlagCreatePairsOff, arg
from tyro.constructors import ConstructorRegistry, PrimitiveConstructorSpec, PrimitiveTypeInfo

from regard.cli.names import entry
from regard.core import OptionError, Options, RegardError, UnknownNameError
from regard.functional.patterns import All, Block, First, Span, Strided, Summary, Union, Window
from regard.functional.rows import Form

VALUES = {
    cls.__name__: cls for cls in (All, Block, Form, First, Span, Strided, Summary, Union, Window)
}
"""Names that an option's value may use, beside literals."""
PLAIN = {
    r"^Error parsing (?:[A-Z]\w+: )*": "",
    "Could not find valid parse for arguments:": "cannot read",
    r"no type matching .* could be instantiated from (\[.*?\])\..*?(?=\. A)": r"cannot read \1",
    "Argument helptext:": "Write",
    r"\[(\w+) \[\1 \.\.\.\]\]": r"\1 \1 ... (separated by spaces)",
    r" \((required|default: )\)": "",
}
"""What tyro says -> what is said here."""
Flag = FlagCreatePairsOff[bool]
Words = tuple[str, ...]  # separated by spaces
Json = Annotated[Flag, arg(help="print data instead of a table")]

LEAST_COLUMNS = 20
"""tyro's help never ends in a terminal of less than six columns."""


def parse(command: Callable, prog: str, args: Sequence[str]) -> Any:
    """Call `command` with its parameters, and the fields of the configurations among them, read from `args`.

    Raises OptionError, in one line, for arguments that do not fit.
    """
    if shutil.get_terminal_size().columns < LEAST_COLUMNS:
        os.environ["COLUMNS"] = str(LEAST_COLUMNS)
    registry = ConstructorRegistry()
    registry.primitive_rule(_name_rule)
    registry.primitive_rule(_options_rule)
    printed = io.StringIO()
    try:
        with registry, redirect_stderr(printed):
            return tyro.cli(command, prog=prog, args=args, config=(tyro.conf.AvoidSubcommands,))
    except SystemExit as stop:
        if stop.code != 2:
            raise
        before, _, frame = printed.getvalue().rpartition("╭")
        printed = io.StringIO(before)
        raise OptionError(f"{_unframed(frame)} `{prog} --help` lists what it takes.") from None
    finally:
        sys.stderr.write(printed.getvalue())


def _unframed(frame: str) -> str:
    """What tyro says in a frame, in one line, without the title and the last part, which names the help."""
    rows = [row.strip(" │╰╯") for row in re.sub(r"\x1b\[[\d;]*m", "", frame).splitlines()[1:]]
    parts = re.split(r" ?[─-]{9,} ?", " ".join(" ".join(rows).split()))
    parts = [part if part.endswith((".", "?")) else f"{part}." for part in parts if part]
    line = " ".join(part for part in parts if "full help" not in part)
    for pattern, plain in PLAIN.items():
        line = re.sub(pattern, plain, line)
    return line


def _name_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """`str | type[Mixer]`, and a tuple of Layers beside them: on a command line, a name, or `module:Class`."""
    members = get_args(info.type)
    bases = [get_args(member)[0] for member in members if get_origin(member) is type]
    if str not in members or not bases:
        return None
    kind = f"{bases[0].__name__.lower()}s"
    return PrimitiveConstructorSpec(
        nargs=1,
        metavar="NAME",
        instance_from_str=lambda words: entry(kind, words[0]) if ":" in words[0] else words[0],
        is_instance=lambda value: isinstance(value, str | type | tuple),
        str_from_instance=lambda value: [_mixer_name(value)],
    )


UNITS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


def amount(text: str) -> float:
    """`amount("8k")` -> 8000.0, `amount("2Ki")` -> 2048.0. Raises ValueError for what is no number with such a unit."""
    parts = re.fullmatch(r"(-?[\d_]*\.?\d+)\s*(\w*)", text)
    if not parts or parts[2] not in UNITS:
        raise ValueError(f"{text!r} is no number such as 4096, 8k or 2Ki")
    return float(Decimal(parts[1]) * UNITS[parts[2]])


def _tokens(words: Sequence[str]) -> int:
    if not (tokens := amount(words[0])).is_integer():
        raise ValueError(f"{words[0]!r} is no whole number of tokens such as 4096, 8k or 2Ki")
    return int(tokens)


Length = Annotated[
    int,
    PrimitiveConstructorSpec(
        nargs=1,
        metavar="TOKENS",
        instance_from_str=_tokens,
        is_instance=lambda value: isinstance(value, int),
        str_from_instance=lambda value: [str(value)],
    ),
]
"""Tokens, on a command line also as 8k (8,000) or 2Ki (2,048)."""


def _mixer_name(value: Any) -> str:
    layers = [layer.mixer for layer in value] if isinstance(value, tuple) else [value]
    return ",".join(getattr(mixer, "name", mixer) for mixer in layers)


def _options_rule(info: PrimitiveTypeInfo) -> PrimitiveConstructorSpec | None:
    """Mappings: `--model.mixer-options window_size=16 shared_qk=True`."""
    if get_origin(info.type) is not Mapping:
        return None
    return PrimitiveConstructorSpec(
        nargs="*",
        metavar="[NAME=VALUE ...]",
        instance_from_str=given_options,
        is_instance=lambda value: isinstance(value, Mapping),
        str_from_instance=lambda value: [f"{name}={item}" for name, item in value.items()],
    )


def given_options(words: Sequence[str], types: Options | None = None) -> dict[str, Any]:
    """Returns what words NAME=VALUE give. Raises OptionError where a name comes twice."""
    found = {}
    for name, value in (option(word, types) for word in words):
        if name in found:
            raise OptionError(f"{name} is given twice")
        found[name] = value
    return found


def option(word: str, types: Options | None = None) -> tuple[str, Any]:
    """A Python literal where the value is one, a value such as `[Window(4, 4), Block(8) | First(1)]`, and text otherwise.

    Where its type is that of a path or a text, the value is as it was typed.
    """
    name, equals, value = word.partition("=")
    if not equals or not name:
        raise OptionError(f"options are written NAME=VALUE, got {word!r}")
    kind = (types or {}).get(name)
    if "Path" in str(kind):
        return name, Path(value)
    if kind in (str, str | None):
        return name, value
    try:
        return name, _read(value)
    except (RecursionError, MemoryError):
        raise OptionError(f"{name} is nested too deeply to be read") from None


def _read(text: str) -> Any:
    try:
        tree = ast.parse(text, mode="eval").body
    except (ValueError, SyntaxError):
        return text
    try:
        return ast.literal_eval(tree)
    except (TypeError, ValueError):
        return _value(tree) if any(isinstance(n, ast.Call) for n in ast.walk(tree)) else text


def _value(node: ast.expr) -> Any:
    """Literals, lists, and values of the classes in VALUES, joined by `|`; nothing else is evaluated."""
    if isinstance(node, ast.List | ast.Tuple):
        return (list if isinstance(node, ast.List) else tuple)(map(_value, node.elts))
    try:
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
            return _value(node.left) | _value(node.right)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id not in VALUES:
                raise UnknownNameError("value", node.func.id, VALUES)
            named = {word.arg: _value(word.value) for word in node.keywords if word.arg}
            return VALUES[node.func.id](*map(_value, node.args), **named)
        return ast.literal_eval(node)
    except (TypeError, ValueError, AttributeError) as error:
        if isinstance(error, RegardError):
            raise
        raise OptionError(
            f"{ast.unparse(node)} is no value: literals, lists, {', '.join(VALUES)} and | are ({error})"
        ) from None
