"""What a user of the package finds: public names, types, version. tests/packaging.py installs it."""

import ast
import inspect
import json
import pydoc
import re
import sys
import textwrap
from typing import Any

import regard
from regard.core import OLDEST_TORCH, Mixer, ShapeError
from regard.models import ModelConfig
from tests.packaging import PROJECT, RESOLVED, ROOT, oldest

sys.path.insert(0, str(ROOT / "docs"))
import api

NAMES = list(api.public())
DESCRIBED = [n for n in NAMES if inspect.isclass(n.value) or inspect.isroutine(n.value)]


def undescribed(value: Any) -> list[str]:
    """Numbers whose meaning neither a docstring nor a comment of the function, class or base says, nor Mixer's or ModelConfig's."""
    if not api.numbers(value):
        return []
    owners = [o for o in getattr(value, "__mro__", [value]) if o.__module__.startswith("regard")]
    docs = "\n".join(described(owner) for owner in (Mixer, ModelConfig, *owners))
    sources = "\n".join(map(inspect.getsource, owners))
    return [
        name
        for name in api.numbers(value)
        if not re.search(rf"\b{name}\b", docs)
        and not re.search(rf"^ *{name}: .*(# |= \($)", sources, re.M)  # or below it, in brackets
    ]


def described(value: Any) -> str:
    """Its docstring; that of a dataclass without one is nothing but its signature."""
    told = inspect.getdoc(value) or ""
    return "" if told.startswith(f"{value.__name__}(") else told


def test_nothing_public_is_gone_or_changed_and_what_breaks_a_program_is_seen():
    meant = "If this is meant: `python docs/api.py`, and a line in CHANGELOG.md."
    assert api.broken(json.loads(api.SNAPSHOT.read_text()), api.snapshot()) == [], meant
    old = {"a": ["x", "y=1"], "b": None}
    assert api.broken(old, {"a": ["x", "y=1", "z=2"], "b": None, "c": []}) == []
    assert api.broken(old, {"a": ["x", "y=2", "z"]}) == ["a: y=1", "a: z is needed", "b"]


def test_version_types_and_the_oldest_torch_are_told_and_every_extra_is_tried():
    assert f"version: {regard.__version__}\n" in (ROOT / "CITATION.cff").read_text()
    newest = re.search(r"^## (\S+)", (ROOT / "CHANGELOG.md").read_text(), re.M)
    assert newest is not None and newest[1] == regard.__version__
    assert (ROOT / "regard/py.typed").exists()
    assert f"torch>={OLDEST_TORCH}" in PROJECT["dependencies"]
    assert {*RESOLVED, "dev", "peers"} == set(PROJECT["optional-dependencies"])
    assert oldest(["torch>=2.10", "rich>=13.7"]) == ["torch==2.10", "rich==13.7"]


def raised(function):
    """Names of the library's errors that a function raises itself."""
    tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
    calls = [n.exc.func for n in ast.walk(tree) if isinstance(getattr(n, "exc", None), ast.Call)]
    names = {call.id for call in calls if isinstance(call, ast.Name)}
    ours = regard.RegardError
    return {name for name in names if issubclass(getattr(regard.core, name, object), ours)}


def unnamed(name):
    """Function or method -> errors that it raises and its docstring does not name; constructors refuse wrong options by rule."""
    if inspect.isroutine(name.value):
        functions = {name.name: name.value} if inspect.isfunction(name.value) else {}
    else:
        own = vars(name.value).items()
        functions = {k: f for k, f in own if inspect.isfunction(f) and not k.startswith("_")}
    told = {key: inspect.getdoc(f) or "" for key, f in functions.items()}
    found = {key: [e for e in raised(f) if e not in told[key]] for key, f in functions.items()}
    return {key: errors for key, errors in found.items() if errors}


def test_public_names_are_described_with_the_errors_that_they_raise_and_their_numbers():
    assert [f"{n.module}.{n.name}" for n in DESCRIBED if not described(n.value)] == []
    found = {f"{n.module}.{n.name}": unnamed(n) for n in DESCRIBED}
    assert {name: errors for name, errors in found.items() if errors} == {}
    found = {f"{n.module}.{n.name}": undescribed(n.value) for n in DESCRIBED}
    assert {name: numbers for name, numbers in found.items() if numbers} == {}


def test_what_a_docstring_leaves_out_is_seen():
    def wait(delay: float, dim: int, tries: int | None = None, name: str = ""):
        """tries: calls at most."""
        raise ShapeError("no")

    wait.__module__ = "regard"
    assert api.numbers(wait) == ["delay", "dim", "tries"]
    assert undescribed(wait) == ["delay"]
    assert unnamed(api.Name("here", "wait", wait)) == {"wait": ["ShapeError"]}
    wait.__doc__ = "Raises ShapeError."
    assert unnamed(api.Name("here", "wait", wait)) == {}


def test_the_site_shows_shapes():
    shapes = {"q": "[B H T K]", "k": "[B G S K]", "v": "[B G S V]", "returns": "[B H T V]"}
    assert api.shapes(regard.functional.softmax_attention) == shapes


def test_help_on_a_mixer_shows_equation_and_options():
    for cls in regard.MIXERS.values():
        told = pydoc.plain(pydoc.render_doc(cls))
        assert "arXiv" in told and "Cost" in told, cls.name
        assert all(f"{p}" in told for p in inspect.signature(cls).parameters), cls.name
    assert "y_i = phi(q_i) S_i" in regard.MIXERS["linear"].__doc__
