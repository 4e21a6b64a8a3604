"""Question: what is compared, on what, and what would agree with what was published; a value, which the engine runs.

    entries    what is compared: mechanisms with options, or whole models
    vary       the columns: tasks with a shell and a budget, or passes that are timed
    claims     what was published, as bounds on differences between entries; verdicts follow from intervals
    kind       "screen": does each entry by itself pass a mark? It holds no claim. "comparison": is one thing better than another, by how much?

An example, whole:

    from regard.lab import Claim, Column, Entry, Question, Shell, above
    from regard.lab.tasks import StdlibBytes
    from regard.lab.train import TrainConfig

    BYTES = Column(name="bytes", task=StdlibBytes(length=256), train=TrainConfig(tokens=2_000_000))

    REACH = Question(
        name="reach",
        about="Does a window of 16 cost bits on bytes of Python?",
        kind="comparison",
        entries=(Entry(mixer="softmax"), Entry(mixer="local", options={"window_size": 16})),
        vary=(BYTES,),
        shells=(Shell(position="rotary"), Shell(position="learned")),
        rates=(1e-3, 3e-3),
        claims=(
            Claim(
                text="A window of 16 predicts bytes worse than full attention.",
                source="Tay et al. 2020, arXiv 2011.04006",
                smallest=0.02,
                expected=(above("local, window 16", "softmax", column="bytes"),),
            ),
        ),
    )

`regard arena module:REACH` runs it and `regard report` draws its page; a question that breaks a law of an experiment
(`regard.lab.experiment.laws`) is refused before anything is run.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from pathlib import Path
from types import FunctionType
from typing import Any, Literal, get_args

from torch import nn

from regard.core import Above0, Bound, Declared, OptionError, Options, UnknownNameError, shown
from regard.lab.experiment.entry import Entry, Facts, check_entries, check_named, leaves
from regard.lab.experiment.speed import Setting
from regard.lab.tasks.task import DataSeed, Splits, Task
from regard.lab.train import FitResult, TrainConfig
from regard.lab.train.short import Short
from regard.models import StackConfig

Place = Literal["encoder", "decoder", "cross"]


class Shell(Declared):
    """What stands around every mechanism of a column: sizes, positions, and further fields of the task's model."""

    dim: int = 64
    num_heads: int = 4
    num_layers: int = 2
    position: str = "sinusoidal"
    fields: Options = field(default_factory=dict)

    def __post_init__(self):
        check_named("shell", self.fields)


DATA = "sources seed facts max_len load nothing trivial_baseline chance read_as has_scores".split()
"""What a task may have of its own for a Short run, which asks nothing else."""


class Column(Declared):
    """A task, the budget and the shell that every entry gets. The engine replaces the rate and the seed of `train`.

    place: of an encoder-decoder, which of its three mixers is compared; the other two are softmax. either: the task has a
    causal form too (its field `causal`), which is given to mechanisms that have no other. model: the configuration of the model around an
    entry, where it is not that of the task's kind. later: begun when all else is done.
    """

    name: str
    task: Task
    train: TrainConfig | Short
    shell: Shell = field(default_factory=Shell)
    place: Place = "encoder"
    model: type[StackConfig] | None = None
    either: bool = False
    later: bool = False

    def __post_init__(self):
        task = type(self.task)
        names = ("score", "measure", "per_item", "item_scores")
        mine = [name for name in names if not getattr(task, name).__module__.startswith("regard.")]
        if self.task.has_scores and mine and not {*mine} & {*names[2:]}:
            raise OptionError(
                f"column {self.name}: {self.task.name} has a {mine[0]} of its own, and its items' are of another metric: give it "
                "`item_scores` too, or has_scores = False"
            )
        asked = [name for name in vars(Task) if name not in DATA and name[0] != "_"]
        own = [name for name in asked if getattr(task, name) != getattr(Task, name)]
        if own and isinstance(self.train, Short):
            raise OptionError(
                f"column {self.name}: a Short run is judged by accuracy and a cross-entropy, and {self.task.name} has a "
                f"{own[0]} of its own: give the column a TrainConfig"
            )

    @property
    def holds(self) -> tuple:
        return type(self.task), self.task, self.model, self.shell

    @property
    def causal(self) -> bool:
        """True if the mechanism sees only earlier tokens."""
        kind = self.task.kind
        return (
            getattr(self.task, "causal", False)
            or kind == "language_model"
            or (kind == "translate" and self.place == "decoder")
        )

    @property
    def facts(self) -> Facts:
        """The column as the question's record has it."""
        task = self.task
        train = self.train
        return {
            "name": self.name, "kind": "trained", "task": task.name, "metric": task.metric, "better": task.better,
            "length": task.max_len, "causal": self.causal, "later": self.later, "shell": self.shell,
            "steps": train.steps, "tokens": train.tokens, "batch": train.batch_size,
        }  # fmt: skip

    def causally(self) -> "Column":
        """The column with its task's causal form."""
        return replace(self, task=replace(self.task, causal=True))  # type: ignore[call-arg]


def columns(task: Task, train: TrainConfig) -> tuple[Column, ...]:
    """The column of a task of one's own, named by its file where it reads one; or one for each place of an encoder-decoder."""
    path = getattr(task, "path", None)
    name = f"{task.name} ({Path(path).name})" if path else task.name
    one = Column(name=name, task=task, train=train)
    if task.kind != "translate":
        return (one,)
    return tuple(replace(one, name=f"{name}, {place}", place=place) for place in get_args(Place))


@dataclass(frozen=True)
class Fitted:
    """An entry trained from one seed: the model has its best weights."""

    entry: Entry
    column: Column
    model: nn.Module
    splits: Splits
    result: FitResult


Measures = Callable[[Fitted], Mapping[str, float]]


class Expected(Declared):
    """`of`'s measure less that of `beside`, or alone, lies between `least` and `most`: a bound on a mean over seeds.

    column: a trained one; the question's only one by default. measure: of Question.measures; the task's metric by default.
    """

    of: str
    beside: str | None = None
    column: str = ""
    measure: str | None = None
    least: Bound = -inf
    most: Bound = inf

    def __post_init__(self):
        if self.least > self.most:
            raise OptionError(
                f"a bound on {self.of} from {self.least} to {self.most} is met by nothing"
            )


def _expected(more: Options, **own: Any) -> Expected:
    if twice := own.keys() & more.keys():
        raise OptionError(f"{twice.pop()} is set by the function, and cannot be given besides")
    return Expected(**own, **more)


def above(of: str, beside: str, *, by: float = 0.0, **more: Any) -> Expected:
    """More by `by`; a negative one says "hardly less"."""
    return _expected(more, of=of, beside=beside, least=by)


def below(of: str, beside: str, *, by: float = 0.0, **more: Any) -> Expected:
    """Less by `by`: better, where the measure is a cost."""
    return _expected(more, of=of, beside=beside, most=0.0 - by)


def near(of: str, beside: str, *, within: float, **more: Any) -> Expected:
    """They differ by at most `within`, in the measure's unit, either way."""
    return _expected(more, of=of, beside=beside, least=-within, most=within)


def reaches(of: str, least: float, **more: Any) -> Expected:
    """Its measure is at least `least`."""
    return _expected(more, of=of, least=least)


def stays_below(of: str, most: float, **more: Any) -> Expected:
    """Its measure is at most `most`."""
    return _expected(more, of=of, most=most)


class Claim(Declared):
    """A published statement, its source, and the results that would agree with it: all of `expected`.

    smallest: the smallest effect worth telling, in the measure's unit. withdrawn: why the comparison is unfair, with the number that
    shows it; it replaces the verdict wherever that is shown.
    """

    text: str
    source: str
    expected: tuple[Expected, ...]
    smallest: float = 0.0
    withdrawn: str = ""


class Question(Declared):
    """Raises OptionError where two entries share a label or two columns a name, UnknownNameError where a claim names none.

    seeds: each entry is trained from each; two in a screen, eight in a comparison. rates: learning rates. In a screen each is tried and
    the best on validation kept; in a comparison the grid goes on in its own ratio until the best is inside. shells: searched with the baseline alone, and the best is given to every
    entry; the columns' own by default. baseline: label of the entry beside which sizes are matched. factors: in what entries may differ
    besides the mechanism ("position"), each of its values crossed with the baseline. measures: more numbers, of the trained model.
    allowed: share of the pairs a column needs that an entry's structure allows, or None. mark: the score at which a screen calls a
    column reached. hours: after which nothing new is begun. limits: what such runs cannot say.
    """

    name: str
    about: str = ""
    entries: tuple[Entry, ...]
    vary: tuple[Column | Setting, ...]
    kind: Literal["screen", "comparison"] = "screen"
    claims: tuple[Claim, ...] = ()
    seeds: tuple[DataSeed, ...] = ()
    rates: tuple[Above0, ...] = ()
    shells: tuple[Shell, ...] = ()
    baseline: str = "softmax"
    factors: tuple[str, ...] = ()
    measures: Measures | None = None
    allowed: Callable[[Entry, Column], float | None] | None = None
    mark: float = 0.9
    hours: Above0 | None = None
    limits: tuple[str, ...] = ()

    def __post_init__(self):
        if not self.entries or not self.vary:
            raise OptionError(f"question {self.name} needs entries and columns")
        check_entries(self.entries)
        self._check_trials()
        if not self.seeds:
            object.__setattr__(self, "seeds", tuple(range(2 if self.kind == "screen" else 8)))
        names = [one.name for one in self.vary]
        labels = [entry.label for entry in self.entries]
        trained = [one.name for one in self.trained]
        if twice := [name for name in names if names.count(name) > 1]:
            raise OptionError(f"question {self.name} has two columns {twice[0]!r}")
        for bound in self.bounds:
            for label in filter(None, (bound.of, bound.beside)):
                if label not in labels:
                    raise UnknownNameError(f"entry of {self.name}", label, labels)
            if bound.column not in trained and (bound.column or len(trained) != 1):
                raise UnknownNameError(f"trained column of {self.name}", bound.column, trained)
            if bound.measure is not None and self.measures is None:
                raise OptionError(
                    f"question {self.name}: a bound is on {bound.measure!r}, and it has no `measures`"
                )

    def _check_trials(self) -> None:
        for what, given in (("rate", self.rates), ("seed", self.seeds)):
            if len({*given}) < len(given):
                raise OptionError(f"question {self.name} has a {what} twice: {given}")
        if self.shells and self.kind == "screen":
            raise OptionError(f"question {self.name}: shells are searched in a comparison alone")
        for _, one in leaves(self.measures):
            plain = isinstance(one, FunctionType | int | float | str | None)
            if not plain or "<" in getattr(one, "__qualname__", ""):
                raise OptionError(
                    f"question {self.name}: measures ({shown(one)}) must be a function by a name of its own in a module, or a partial of "
                    "one with numbers and text: nothing tells the results of others apart"
                )

    @property
    def base(self) -> Entry | None:
        """The entry whose size the others are given; None in a screen."""
        if self.kind == "screen":
            return None
        return next((entry for entry in self.entries if entry.label == self.baseline), None)

    @property
    def bounds(self) -> list[Expected]:
        """Bounds of all claims."""
        return [one for claim in self.claims for one in claim.expected]

    @property
    def trained(self) -> tuple[Column, ...]:
        return tuple(one for one in self.vary if isinstance(one, Column))

    @property
    def timed(self) -> tuple[Setting, ...]:
        return tuple(one for one in self.vary if isinstance(one, Setting))
