"""The public names: what the `__all__` of each public module lists, with signatures.

`python docs/api.py` writes tests/public_names.json. A test fails where something of it is gone or changed; what is added breaks no user, and
is written at the next release.
"""

import importlib
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple, get_args

SNAPSHOT = Path(__file__).parent.parent / "tests/public_names.json"
MODULES = """
regard regard.core regard.functional regard.mixers regard.nn regard.positions regard.pools
regard.models regard.parallel regard.testing regard.hf regard.explore
regard.lab.data regard.lab.tasks regard.lab.train regard.lab.tables regard.lab regard.lab.report
""".split()
"""A name outside these may change without notice."""
IN_MEMORY = re.compile(r"<(?:function )?(?:[\w<>]+\.)*([\w<>]+)(?: object)? at 0x\w+>")
"""A default whose text is an address: its name or its type is shown."""


class Name(NamedTuple):
    module: str
    name: str
    value: Any

    @property
    def parameters(self) -> list[str] | None:
        """Parameters of a function or class with their defaults, without annotations; None of other values."""
        found = _parameters(self.value)
        plain = found and [str(p.replace(annotation=p.empty)) for p in found]
        return plain and [IN_MEMORY.sub(r"<\1>", parameter) for parameter in plain]

    @property
    def signature(self) -> str:
        found = self.parameters
        return "" if found is None else f"({', '.join(found)})"


def _parameters(value: Any) -> list[inspect.Parameter] | None:
    try:
        return list(inspect.signature(value).parameters.values()) if callable(value) else None
    except (TypeError, ValueError):  # of C, or of classes of errors
        return None


def public() -> Iterator[Name]:
    """Every public name once, in the first module that lists it, and each mixer's class."""
    seen = set()
    for module in MODULES:
        found = importlib.import_module(module)
        for name in sorted(found.__all__):
            value = getattr(found, name)
            if id(value) not in seen:
                seen.add(id(value))
                yield Name(module, name, value)
    for cls in importlib.import_module("regard.mixers").MIXERS.values():
        yield Name(cls.__module__, cls.__name__, cls)


def numbers(value: Any) -> list[str]:
    """Parameters of a function or class that are numbers, or may be."""
    if not (inspect.isclass(value) or inspect.isfunction(value)):
        return []
    kinds = {p.name: str(p.annotation) for p in _parameters(value) or ()}
    is_number = re.compile(r"\b(int|float)\b").search
    return [name for name, kind in kinds.items() if is_number(kind) and "Tensor" not in kind]


def shapes(value: Any) -> dict[str, str]:
    """Name of an argument that is a tensor, and "returns", -> its shape."""
    kinds = {p.name: p.annotation for p in _parameters(value) or ()}
    if inspect.isfunction(value):
        kinds["returns"] = value.__annotations__.get("return")
    ways = {name: (kind, *get_args(kind)) for name, kind in kinds.items()}
    return {
        name: f"[{one.dim_str}]"
        for name, several in ways.items()
        for one in several
        if hasattr(one, "dim_str")
    }


def snapshot() -> dict[str, list[str] | None]:
    return {f"{name.module}.{name.name}": name.parameters for name in public()}


def broken(old: dict[str, list[str] | None], new: dict[str, list[str] | None]) -> list[str]:
    """What a program that was written for `old` would miss: a name, a parameter, a default, or a new argument that is needed."""
    found = [name for name in old if name not in new]
    for name in old.keys() & new.keys():
        before, now = old[name] or [], new[name] or []
        found += [f"{name}: {one}" for one in before if one not in now]
        added = [one for one in now if one not in before]
        needed = [one for one in added if one[0] != "*" and "=" not in one]
        found += [f"{name}: {one} is needed" for one in needed]
    return sorted(found)


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(snapshot(), indent=0) + "\n")
