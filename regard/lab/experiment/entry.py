"""Entry: one of the things that a question compares, under the label by which all pages call it."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import field, is_dataclass
from functools import partial
from types import FunctionType
from typing import TYPE_CHECKING, Any

import torch

from regard.core import Declared, Mixer, OptionError, Options, check_option, limited, shown
from regard.lab.data.source import label as written, own_files, source
from regard.lab.experiment import provenance
from regard.lab.experiment.row import Facts, as_json
from regard.mixers import MIXERS
from regard.mixers.build import build, check_own, resolve
from regard.models import ModelConfig

if TYPE_CHECKING:
    from regard.lab.experiment.question import Column


class Entry(Declared):
    """A mechanism with its options in the column's shell, or a model made whole.

    mixer: a catalogue name or a class; `typed` is what a user wrote for the class. options: its own. model: fields of the
    model's configuration that differ from the shell's (position, norm ...). make: instead of a mixer, the configuration of
    any model that serves the column's task. before: a column that is trained first, from the same seed; the weights that fit
    are taken. title: instead of the name with its options.
    """

    mixer: str | type[Mixer] | None = None
    options: Options = field(default_factory=dict)
    model: Options = field(default_factory=dict)
    make: "Callable[[Column], ModelConfig] | None" = None
    before: "Column | None" = None
    title: str = ""
    typed: str = ""

    def __post_init__(self):
        if (self.mixer is None) == (self.make is None):
            raise OptionError(f"entry {self.title!r} needs one of mixer and make")
        if not (self.before is None or hasattr(self.before, "task")):
            raise OptionError(f"entry: before ({shown(self.before)}) must be a Column")
        if self.make and not (
            callable(self.make) and self.title and not {**self.options, **self.model}
        ):
            raise OptionError(
                "an entry that makes its model needs a function and a title, and takes neither options nor model"
            )
        check_own("entry", self.options)
        check_named("entry", {"mixer": self.mixer, **self.options, **self.model})
        if self.make and not isinstance(self.written, type | FunctionType):
            raise OptionError(f"entry {self.title!r}: make ({shown(self.make)}) must be a function")
        if not (
            isinstance(self.mixer, str)
            or str(getattr(self.mixer, "__module__", "")).startswith("regard.")
        ):
            self.source  # noqa: B018  as early as can be: the file may be edited while the question runs

    @property
    def name(self) -> str:
        """A name of the catalogue, module:Class, or the title of an entry without a mixer. A subclass never has its parent's name."""
        if not self.mixer:
            return self.title
        cls = resolve(self.mixer)
        return cls.name if cls in MIXERS.values() else self.typed or written(cls)

    @property
    def label(self) -> str:
        """The title, or the name with the options and fields that were given: "local, window 4"."""
        given = {**self.options, **self.model}
        return self.title or ", ".join([self.name, *(_said(*pair) for pair in given.items())])

    @property
    def written(self) -> Any:
        """The class of the mixer, or the function that makes the model."""
        if self.mixer:
            return resolve(self.mixer)
        return self.make.func if isinstance(self.make, partial) else self.make

    @property
    def source(self) -> str:
        return source(self.written)

    @property
    def commit(self) -> str:
        return commit(*self.holds)

    @property
    def holds(self) -> tuple:
        """What may hold code of one's own."""
        return self.written, self.make, self.options, self.model, self.before and self.before.holds

    @property
    def is_softmax(self) -> bool:
        """True for softmax attention at its default options, the baseline of all timings."""
        return self.mixer == "softmax" and not self.options

    def made(self, column: "Column") -> ModelConfig:
        """What `make` gives. Raises OptionError where that is no configuration of a model."""
        assert self.make is not None
        found = self.make(column)
        check_option(f"entry {self.title!r}", "what make gives", found, ModelConfig)
        return found

    def build(self, *, dim: int, num_heads: int, max_len: int) -> Mixer:
        assert self.mixer is not None
        return build(self.mixer, dim=dim, num_heads=num_heads, max_len=max_len, **self.options)

    @property
    def num_heads(self) -> int:
        """Heads of a sketch of width 24: three, or as many as options that are given for each head say."""
        for count in (3, 4, 2, 1, 6, 8, 12):
            with suppress(OptionError):
                self.sketch(num_heads=count)
                return count
        return 3  # what is built with it says what is wrong

    def sketch(self, *, dim: int = 24, num_heads: int | None = None, max_len: int = 64) -> Mixer:
        """The mixer on the meta device: what it can do, at no cost."""
        heads = num_heads or self.num_heads
        with torch.device("meta"), limited():
            return self.build(dim=dim, num_heads=heads, max_len=max_len)

    def identity(self) -> Facts:
        """The entry as a part of keys: its name, options, and the source of all that it holds."""
        return {
            "mixer": self.name,
            "options": self.options,
            "model": self.model,
            "source": self.source,
        } | sources(self.options, self.model)

    @property
    def facts(self) -> Facts:
        """Fields of its rows."""
        options = as_json(self.options)
        return {"entry": self.label, "mixer": self.name, "options": options, "source": self.source}

    def refusal(self, sketch: Mixer, *needed: str) -> str | None:
        """Why its sketch lacks the first of these capabilities that it lacks, or None."""
        why = sketch.capabilities.refusals()
        told = (f"{self.name} does not support {one}: {why[one]}" for one in needed if one in why)
        return next(told, None)


def _said(name: str, value: Any) -> str:
    short = name.removesuffix("_size").removeprefix("num_").replace("_", " ")
    if isinstance(value, type | FunctionType):
        value = value.__name__
    return short if value is True else f"{short} {value}"


def check_entries(entries: Iterable[Entry]) -> None:
    """OptionError where two of them would be shown under one label."""
    labels = [entry.label for entry in entries]
    for label in labels:
        if labels.count(label) > 1:
            raise OptionError(
                f"{label} cannot be entered twice (law 10 of an experiment): its results would share a label. Leave one out, or give it a title."
            )


def check_named(what: str, values: Options) -> None:
    """OptionError where these hold a class or function that no key of results can name."""
    for name, value in leaves(values):
        if callable(value) and "<" in getattr(value, "__qualname__", "<"):
            raise OptionError(
                f"{what}: {name} ({shown(value)}) must be a class or function by a name of its own in a module: nothing tells its "
                "results from those of another that is made in the same place"
            )


def leaves(value: Any, name: str = "") -> Iterator[tuple[str, Any]]:
    """(name, value) of what these values hold, however deep; what is in a list goes by the list's name."""
    if isinstance(value, partial):
        value = (value.func, value.args, value.keywords)
    if is_dataclass(value) and not isinstance(value, type):
        value = vars(value)
    if isinstance(value, Mapping):
        for key, one in value.items():
            yield from leaves(one, key)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from leaves(one, name)
    else:
        yield name, value


def sources(*parts: Any) -> Facts:
    """{"sources": label -> source} of the classes and functions in these values, however deep; empty without any."""
    held = functions(parts)
    return {"sources": {written(one): source(one) for one in held}} if held else {}


def commit(*parts: Any) -> str:
    """The commit of the checkout, "+changes" also where a file that one of their classes and functions needs is in no commit as it is now."""
    return provenance.commit(*(path for one in functions(parts) for path in own_files(one)))


def functions(parts: Any) -> list[Any]:
    return [value for _, value in leaves(parts) if isinstance(value, type | FunctionType)]
