"""Names on the command line: an entry of a catalogue, or one's own class as `module:Class`."""

import inspect
import sys
import traceback
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from regard.cli.describe import catalog
from regard.core import OptionError, UnknownNameError

if TYPE_CHECKING:
    from regard.lab.experiment.entry import Entry

BASES: dict[str, tuple[str, str]] = {
    "mixers": ("regard.core", "Mixer"),
    "pools": ("regard.core.pool", "Pool"),
    "scores": ("regard.nn.scores", "Score"),
    "models": ("torch.nn", "Module"),
    "tasks": ("regard.lab.tasks", "Task"),
    "questions": ("regard.lab.experiment.question", "Question"),
}
"""Kind -> module and name of the base of one's own entry of this kind."""
WANTED = {
    "mixers": "a subclass of regard.Mixer",
    "pools": "a subclass of regard.core.pool.Pool",
    "scores": "a subclass of regard.nn.scores.Score",
    "models": "a torch.nn.Module",
    "tasks": "a subclass of regard.lab.tasks.Task",
    "questions": "a regard.lab.Question",
}


def entry(kind: str, name: str) -> Any:
    """The entry of this catalogue, or what `module:Class` names, where the module may lie in the current folder.

    Mixers, pools, models and tasks are classes; a question is a Question. Raises UnknownNameError, OptionError.
    """
    if ":" in name:
        return own(name, (kind,))[1]
    found = catalog(kind)
    if name not in found and (hint := _meant(name)):
        raise OptionError(f"unknown {kind.removesuffix('s')} {name!r}. {hint}")
    return found[name]


def choice(name: str, options: Mapping[str, Any] | None = None) -> "Entry":
    """A mixer of the catalogue, or one's own under the label that was typed. Raises UnknownNameError, OptionError."""
    from regard.lab.experiment.entry import Entry
    from regard.mixers import MIXERS

    cls = entry("mixers", name)
    if cls in MIXERS.values():
        return Entry(mixer=cls.name, options=options or {})
    return Entry(mixer=cls, options=options or {}, typed=name)


def own(name: str, kinds: tuple[str, ...] = tuple(WANTED)) -> tuple[str, Any]:
    """Kind and entry of `module:Class`. Raises OptionError where it is of none of these kinds."""
    found = imported(name)
    kind = next((kind for kind in kinds if _fits(kind, found)), None)
    if kind is None:
        module, _, attribute = name.partition(":")
        wanted = ", nor ".join(WANTED[kind] for kind in kinds)
        raise OptionError(f"{name}: {attribute!r} in {module} is not {wanted}")
    return kind, found


def task(name: str, given: Mapping[str, Any]) -> Any:
    """The task of this name or class with these options. Raises UnknownNameError, OptionError."""
    cls = entry("tasks", name)
    hints = get_type_hints(cls)
    known = list(inspect.signature(cls).parameters)
    for key in given:
        if key not in known:
            raise UnknownNameError(f"option of {cls.name}", key, known)
    paths = {key: value for key, value in given.items() if "Path" in str(hints[key])}
    return cls(**dict(given) | {key: Path(str(value)) for key, value in paths.items()})


def _question(name: str) -> Any:
    """The question of this name, or None."""
    if ":" in name:
        return own(name, ("questions",))[1]
    questions = catalog("questions")
    return questions[name] if name in questions else None


def _trial(question: Any, label: str, column_name: str = "") -> Any:
    """One entry of a question in a column, its first by default, from its first seed at its first rate."""
    from regard.lab.experiment.trial import as_run

    entries = {one.label: one for one in question.entries} | {
        one.name: one for one in question.entries
    }
    columns = {one.name: one for one in question.trained}
    for what, name, known in (("entry", label, entries), ("column", column_name, columns)):
        if name and name not in known:
            raise UnknownNameError(f"{what} of {question.name}", name, known)
    column = columns[column_name or next(iter(columns))]
    base = entries[question.baseline] if question.kind == "comparison" else None
    rate = question.rates[0] if question.rates else None
    return as_run(column, entries[label], question.seeds[0], rate, column.task.load(), base)


def imported(name: str) -> Any:
    """What `module:name` names, where the module may lie in the current folder. Raises OptionError, UnknownNameError."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        found = import_module(module)
    except Exception as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent not in (module, module.partition(".")[0]):
            raise OptionError(f"{name}: {_told(error)}") from error
        path = Path(module).with_suffix(".py")
        there = path.exists() and not path.is_absolute()
        hint = f". Write {'.'.join(path.with_suffix('').parts)}:{attribute}" if there else ""
        raise OptionError(f"{name}: there is no module {module!r} here{hint}") from None
    if not hasattr(found, attribute):
        raise UnknownNameError(f"name in {module}", attribute, _public(vars(found)))
    return getattr(found, attribute)


def _told(error: Exception) -> str:
    """An error while a module was imported: what, and the innermost place in the folder of that module."""
    frames = traceback.extract_tb(error.__traceback__)[2:]  # after ours and import_module's
    places = [(f.filename, f.lineno) for f in frames if not f.filename.startswith("<frozen")]
    home = {Path(path).parent for path, _ in places[:1]}
    places = [place for place in places if Path(place[0]).parent in home]
    if isinstance(error, SyntaxError) and error.filename:
        places.append((error.filename, error.lineno))
    said = str(getattr(error, "msg", error)).partition("\n")[0]
    if not places:
        return f"{said}. A class of your own is written module:Class"
    return f"{type(error).__name__} in {places[-1][0]}, line {places[-1][1]}: {said}"


def _meant(name: str) -> str:
    """The right spelling of several names, or of a class in the current folder; empty where `name` is neither."""
    if "," in name:
        return f"Names are separated by spaces: {name.replace(',', ' ')}"
    module = name.partition(".")[0]
    if Path(f"{module}.py").exists():
        return f"A class of your own is written {module}:Class"
    return ""


def _public(names: Mapping[str, Any]) -> list[str]:
    return [name for name in names if not name.startswith("_")]


def _fits(kind: str, found: Any) -> bool:
    module, name = BASES[kind]
    base = getattr(import_module(module), name)
    if kind == "questions":
        return isinstance(found, base)
    return isinstance(found, type) and issubclass(found, base)


def run(name: str) -> Any:
    """The Run of TASK, TASK/MODEL or QUESTION/ENTRY/COLUMN, or what `module:function` returns. Raises UnknownNameError, OptionError."""
    from regard.lab.train import Run, run_for

    if "/" in name and (found := _question(name.partition("/")[0])) is not None:
        return _trial(found, *name.split("/")[1:3])
    if ":" not in name:
        if "/" not in name:
            entry("tasks", name)  # whose error knows more spellings
        return run_for(name)
    function = imported(name)
    if not inspect.isfunction(function) or inspect.signature(function).parameters:
        raise OptionError(
            f"{name} is not a function without arguments that returns a regard.lab.train.Run"
        )
    found = function()
    if not isinstance(found, Run):
        raise OptionError(f"{name} returned {type(found).__name__}, and not a Run")
    return found
