"""The catalogues as plain data: what `ls` and `show` print, and the tables in the documents are made of."""

import inspect
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import MISSING, asdict, fields, is_dataclass
from itertools import chain
from pkgutil import resolve_name
from typing import Any, get_type_hints

from regard.core import VARIADIC, No, UnknownNameError
from regard.core.annotations import annotations, configuration, spelled
from regard.core.packages import lacking_extra
from regard.mixers.build import resolve

SOURCES = {
    "mixers": "regard.mixers:MIXERS",
    "pools": "regard.pools:POOLS",
    "scores": "regard.nn:SCORES",
    "models": "regard.models:MODELS",
    "tasks": "regard.lab.tasks:TASKS",
    "positions": "regard.positions:POSITIONS",
    "feed_forwards": "regard.nn:FEED_FORWARDS",
    "questions": "regard.lab.questions:QUESTIONS",
    "sources": "regard.lab.data.sources.table:SOURCES",
}
"""Kind, as `regard ls KIND` names it -> its catalogue."""

ABILITIES = (
    "causal",
    "bidirectional",
    "padding",
    "pairwise",
    "global_tokens",
    "cross",
    "streaming",
    "attention_map",
    "any_length",
)
FACTS = {"dim", "num_heads", "max_len"}
"""Constructor arguments that the stack gives, rather than the user's options."""


Facts = dict[str, Any]
"""What is told of an entry: JSON values by name."""


def catalog(kind: str) -> Any:
    """The catalogue of this kind. Raises UnknownNameError."""
    if kind not in SOURCES:
        raise UnknownNameError("kind", kind, SOURCES)
    return resolve_name(SOURCES[kind])


def kinds() -> dict[str, Any]:
    """The catalogues that load here, by kind: some of them need the extra `lab`."""
    found = {}
    for kind in SOURCES:
        try:
            found[kind] = catalog(kind)
        except ModuleNotFoundError as error:
            if not lacking_extra(error):
                raise
    return found


def overview(kind: str) -> list[Facts]:
    """One row for each entry of a catalogue."""
    return [_row(kind, entry) for entry in catalog(kind).values()]


def details(name: str) -> list[Facts]:
    """Everything about each entry of this name: kind, text, options, and a mixer's capabilities with reasons."""
    known = kinds()
    found = [about(kind, entries[name]) for kind, entries in known.items() if name in entries]
    if not found:
        raise UnknownNameError("name", name, dict.fromkeys(chain(*known.values())))
    return found


def options(entry: Any) -> list[Facts]:
    """Name, meaning, allowed values, default and, where there is none, `required` of what can be set."""
    entry = configuration(entry)
    types = annotations(entry.__init__)
    told = meanings(entry)
    settable = {
        p.name: p.default
        for p in inspect.signature(entry).parameters.values()
        if p.kind not in VARIADIC
    }
    for field in fields(entry) if is_dataclass(entry) else ():
        if field.default_factory is not MISSING:
            settable[field.name] = field.default_factory()
    return [
        {
            "name": name,
            "default": None if default is _NONE else _plain(default),
            "required": default is _NONE,
            "given_by_the_stack": name in FACTS,
            "meaning": told.get(name, ""),
            "values": spelled(types[name]) if name in types else "",
        }
        for name, default in settable.items()
    ]


_NONE = inspect.Parameter.empty


def meanings(cls: type) -> dict[str, str]:
    """Option -> its meaning with the unit: a line `name: meaning` in the docstring of the class, its file or a base."""
    docs = (
        doc
        for one in reversed(cls.__mro__)
        for doc in (inspect.getmodule(one).__doc__, one.__doc__)
    )
    return dict(re.findall(r"^ *(\w+): (.+)$", "\n".join(filter(None, docs)), re.M))


def presets(model: Any) -> list[str]:
    """Names of a model's sizes: those that it holds, or the functions of its file that make its configuration."""
    if not inspect.isclass(model):
        return list(model.presets)
    wanted = configuration(model)
    return [
        name
        for name, make in inspect.getmembers(inspect.getmodule(model), inspect.isfunction)
        if not name.startswith("_") and get_type_hints(make).get("return") is wanted
    ]


TOLD = {
    "tasks": ("kind", "metric", "better"),
    "sources": ("licence", "terms"),
    "scores": ("formula",),
}
"""Kind -> what is told of an entry besides its name and text."""


def _row(kind: str, entry: Any) -> Facts:
    about = {name: getattr(entry, name) for name in ("name", *TOLD.get(kind, ()))}
    if kind == "mixers":
        can = entry.capabilities
        return about | {
            "family": entry.family,
            "cannot": [n for n in can.refusals() if n in ABILITIES],
            "streaming": _spell(can.streaming).partition(":")[0],
            "time": can.time,
            "memory": can.memory,
            "state": can.state or "",
        }
    if kind == "models":
        about |= {"tasks": configuration(entry).kinds, "presets": presets(entry)}
    return about | {"what": _summary(kind, entry)}


def about(kind: str, entry: Any) -> Facts:
    """Everything about one entry, or about one's own class of this kind."""
    facts = {
        "name": getattr(entry, "name", None) or entry.__name__,
        "kind": kind.removesuffix("s"),
        "text": _text(entry),
    }
    if kind == "mixers":
        can = resolve(entry).capabilities
        facts |= {
            "family": getattr(entry, "family", "other"),
            "paper": getattr(entry, "paper", ""),
            "capabilities": {
                n: _spell(getattr(can, n)) for n in (*ABILITIES, "deterministic", "exchange")
            },
            "includes_ffn": can.includes_ffn,
            "positions": sorted(can.positions),
            "approximates": can.approximates,
            "finite_to": can.finite_to,
            "cost": {"time": can.time, "memory": can.memory, "state": can.state},
            "variants": {name: dict(chosen) for name, chosen in entry.variants.items()},
        }
    if kind in ("scores", "sources"):
        facts |= {name: getattr(entry, name) for name in TOLD[kind]}
    if kind == "sources":
        packages = {package.file: package.sha256 for package in entry.packages}
        return facts | {"packages": packages, "get": entry.get_command, "options": []}
    if kind == "questions":
        return facts | {
            "design": entry.kind,
            "entries": [one.label for one in entry.entries],
            "columns": [one.name for one in entry.vary],
            "claims": [f"{claim.text} ({claim.source})" for claim in entry.claims],
            "options": [],
        }
    facts["options"] = options(entry) if inspect.isclass(entry) else _settings(entry)
    return facts


def _settings(entry: Any) -> list[Facts]:
    """The fields of an entry that is a value."""
    return [
        {"name": name, "default": _plain(value)}
        for name, value in _flat(asdict(entry))
        if name not in ("name", "about")
    ]


def _flat(tree: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for name, value in tree.items():
        if isinstance(value, Mapping) and value:
            yield from _flat(value, f"{prefix}{name}.")
        else:
            yield prefix + name, value


def _text(entry: Any) -> str:
    """The docstring of the defining file, then the entry's own, without the meanings of options."""
    if hasattr(entry, "about"):
        return entry.about
    parts = inspect.getmodule(entry).__doc__, vars(entry).get("__doc__")
    texts = (inspect.cleandoc(part).partition("\n\nArgs:\n")[0] for part in parts if part)
    return "\n\n".join(dict.fromkeys(texts))


def _summary(kind: str, entry: Any) -> str:
    if kind == "feed_forwards":
        return ", ".join(f"{one['name']} {one['default']}" for one in _settings(entry))
    own = vars(entry).get("__doc__") if kind in ("positions", "scores") else None
    return (own or _text(entry)).strip().partition("\n")[0]


def _spell(answer: Any) -> str:
    """A capability as "yes", "exact", "segment", or "no: <reason>"."""
    if isinstance(answer, No):
        return f"no: {answer.reason}"
    return "yes" if answer is True else str(answer)


def _plain(value: Any) -> Any:
    """The value as JSON holds it."""

    def spelled(one: Any) -> Any:
        return list(one) if isinstance(one, Iterable) else getattr(one, "__name__", str(one))

    return json.loads(json.dumps(value, default=spelled))
