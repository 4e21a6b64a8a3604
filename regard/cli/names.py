"""Names on the command line: an entry of a catalogue, or one's own class as `module:Class`."""

import inspect
import sys
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from regard.cli.describe import catalog
from regard.core import Catalog, OptionError, UnknownNameError, blamed, limited

if TYPE_CHECKING:
    from regard.lab import Entry

BASES = {
    "mixers": "regard.Mixer",
    "pools": "regard.core.pool.Pool",
    "scores": "regard.nn.scores.Score",
    "models": "torch.nn.Module",
    "tasks": "regard.lab.tasks.Task",
    "questions": "regard.lab.Question",
}
"""Kind -> what one's own entry of this kind is: a subclass, or the question itself."""


def entry(kind: str, name: str) -> Any:
    """The entry of this catalogue, or what `module:Class` names, where the module may lie in the current folder.

    Mixers, pools, models and tasks are classes; a question is a Question. Raises UnknownNameError, OptionError.
    """
    if ":" in name:
        return own(name, (kind,))[1]
    found = catalog(kind)
    module = name.partition(".")[0]
    hint = ""
    if "," in name:
        hint = f"Names are separated by spaces: {name.replace(',', ' ')}"
    elif Path(f"{module}.py").exists():
        hint = f"A class of your own is written {module}:Class"
    if hint and name not in found:
        raise OptionError(f"unknown {kind.removesuffix('s')} {name!r}. {hint}")
    return found[name]


def choice(name: str) -> "Entry":
    """A mixer of the catalogue, or one's own under the label that was typed. Raises UnknownNameError, OptionError."""
    from regard.lab import Entry
    from regard.mixers import MIXERS

    cls = entry("mixers", name)
    return Entry(mixer=cls.name) if cls in MIXERS.values() else Entry(mixer=cls, typed=name)


def own(name: str, kinds: Sequence[str] = tuple(BASES)) -> tuple[str, Any]:
    """Kind and entry of `module:Class`. Raises OptionError where it is of none of these kinds."""
    found = imported(name)
    for kind in kinds:
        wanted = resolve_name(BASES[kind])
        value = kind == "questions"
        if isinstance(found, wanted if value else type) and (value or issubclass(found, wanted)):
            return kind, found
    said = ", nor ".join(
        f"a{'n instance' if k == 'questions' else ' subclass'} of {BASES[k]}" for k in kinds
    )
    module, _, attribute = name.partition(":")
    raise OptionError(f"{name}: {attribute!r} in {module} is not {said}")


def _trial(question: Any, label: str, column_name: str = "") -> Any:
    """One entry of a question in a column, its first by default, from its first seed at its first rate."""
    from regard.lab.experiment.trial import as_run

    labels = {one.label: one for one in question.entries}
    named = [one for one in question.entries if label in (one.label, one.name)]
    if label not in labels and len(named) != 1:
        raise UnknownNameError(f"entry of {question.name}", label, labels)
    entry = labels.get(label, named[0])
    if entry.before:
        raise OptionError(
            f"{label} is trained on {entry.before.name} first: train that column, and go on from its folder with --start-from"
        )
    columns = Catalog(f"column of {question.name}", question.trained)
    column = columns[column_name or next(iter(columns), "")]
    rate = question.rates[0] if question.rates else None
    return as_run(column, entry, question.seeds[0], rate, column.task.load(), question.base)


def imported(name: str) -> Any:
    """What `module:name` names, where the module may lie in the current folder. Raises OptionError, UnknownNameError."""
    module, _, attribute = name.partition(":")
    if "" not in sys.path:
        sys.path.insert(0, "")
    try:
        with limited():
            found = import_module(module)
    except (Exception, SystemExit) as error:
        absent = error.name if isinstance(error, ModuleNotFoundError) else None
        if absent not in (module, module.partition(".")[0]):
            said = blamed(error) or f"{error}. A class of your own is written module:Class"
            raise OptionError(f"{name}: {said}") from error
        path = Path(module).with_suffix(".py")
        there = path.exists() and not path.is_absolute()
        hint = f". Write {'.'.join(path.with_suffix('').parts)}:{attribute}" if there else ""
        raise OptionError(f"{name}: there is no module {module!r} here{hint}") from None
    if not hasattr(found, attribute):
        public = [name for name in vars(found) if not name.startswith("_")]
        raise UnknownNameError(f"name in {module}", attribute, public)
    return getattr(found, attribute)


def run(name: str) -> Any:
    """The Run of TASK, TASK/MODEL or QUESTION/ENTRY/COLUMN, or what `module:function` returns. Raises UnknownNameError, OptionError."""
    from regard.lab.train import Run, run_for

    first, *rest = name.split("/", 2)
    if rest and (":" in first or first in catalog("questions")):
        return _trial(entry("questions", first), *rest)
    if ":" not in name:
        entry("tasks", first)  # whose error knows more spellings
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
