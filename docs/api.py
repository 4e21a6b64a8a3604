"""The public names: what the `__all__` of each public module lists, with signatures.

`python docs/api.py` writes tests/public_names.json. A test fails where something of it is gone or changed; what is added breaks no user, and
is written at the next release.
"""

import importlib
import inspect
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SNAPSHOT = Path(__file__).parent.parent / "tests/public_names.json"
MODULES = (
    "regard",
    "regard.core",
    "regard.functional",
    "regard.mixers",
    "regard.nn",
    "regard.positions",
    "regard.pools",
    "regard.models",
    "regard.testing",
    "regard.hf",
    "regard.explore",
    "regard.lab.data",
    "regard.lab.tasks",
    "regard.lab.train",
    "regard.lab.recipes",
    "regard.lab.tables",
    "regard.lab.arena.report",
)
"""A name outside these may change without notice."""


class Name(NamedTuple):
    module: str
    name: str
    value: Any

    @property
    def parameters(self) -> list[str] | None:
        """Parameters of a function or class with their defaults, without annotations; None of other values."""
        if not callable(self.value):
            return None
        try:
            found = inspect.signature(self.value).parameters.values()
        except (TypeError, ValueError):
            return None
        return [str(_plain(p.replace(annotation=p.empty))) for p in found]

    @property
    def signature(self) -> str:
        found = self.parameters
        return "" if found is None else f"({', '.join(found)})"


def _plain(parameter: inspect.Parameter) -> inspect.Parameter:
    """A default whose text has an address in memory is shown by its type."""
    shown = repr(parameter.default)
    if parameter.default is parameter.empty or " at 0x" not in shown:
        return parameter
    name = getattr(parameter.default, "__name__", type(parameter.default).__name__)
    return parameter.replace(default=type("Shown", (), {"__repr__": lambda self: f"<{name}>"})())


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
    for cls in importlib.import_module("regard.mixers").MIXERS:
        yield Name(cls.__module__, cls.__name__, cls)


def snapshot() -> dict[str, list[str] | None]:
    return {f"{name.module}.{name.name}": name.parameters for name in public()}


def broken(old: dict[str, list[str] | None], new: dict[str, list[str] | None]) -> list[str]:
    """What a program that was written for `old` would miss: a name, a parameter, a default, or a new argument that is needed."""
    found = [name for name in old if name not in new]
    for name in old.keys() & new.keys():
        before, now = old[name] or [], new[name] or []
        found += [f"{name}: {one}" for one in before if one not in now]
        found += [f"{name}: {one} is needed" for one in now if one not in before and _needed(one)]
    return sorted(found)


def _needed(parameter: str) -> bool:
    return "=" not in parameter and not parameter.startswith("*")


if __name__ == "__main__":
    SNAPSHOT.write_text(json.dumps(snapshot(), indent=0) + "\n")
