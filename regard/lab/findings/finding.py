"""Finding: a published claim put to the test, as data.

    entries    what is compared: a label, and a function that makes a Run (any task, model option, training option)
    claims     what was published, as bounds on differences between entries; the verdict follows from intervals
    seeds      each entry is trained from each; differences are paired by seed

An example, whole:

    def run(norm_first: bool) -> Run:
        task = ListOps()
        model = ClassifierConfig(**task.facts, max_len=task.max_len, norm_first=norm_first)
        return Run(task=task, model=model, train=TrainConfig(steps=300))

    NORM_PLACE = Finding(
        name="norm_place",
        about="Does pre-norm train better than post-norm?",
        entries=(
            Entry("pre-norm", lambda: run(True)),
            Entry("post-norm", lambda: run(False)),
        ),
        claims=(
            Claim(
                "Pre-norm is better where nothing warms up.",
                "Xiong et al. 2020, arXiv 2002.04745",
                (above("pre-norm", "post-norm"),),
            ),
        ),
        limits=("Two layers; the article's models have six and more.",),
    )

`regard arena module:NORM_PLACE` runs it and `regard report --finding module:NORM_PLACE` draws its page. One of Regard's own is a file of
this folder and a line in FINDINGS. More numbers than the task's metric come from `measures`; an entry that trains
nothing gives its numbers itself (`Entry(label, values=...)`), alone on its machine where they are times.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.core import OptionError, UnknownNameError
from regard.lab.tasks import Splits
from regard.lab.train import FitResult, Run


@dataclass(frozen=True)
class Fitted:
    """An entry trained from one seed: the model has its best weights."""

    run: Run
    model: nn.Module
    splits: Splits
    result: FitResult


def named(part: str, label: str) -> str:
    """An entry's name, from its part and label."""
    return f"{part}: {label}" if part else label


@dataclass(frozen=True)
class Entry:
    """One of what is compared: `run` makes what is trained, or `values` measures, from a seed, without training.

    before: what is trained first, from the same seed; the model of `run` begins with its weights.
    part: the table, and the panel of the figure, that it is shown in; labels may recur in other parts.
    line: entries of one line are joined in a figure with an x.
    """

    label: str
    run: Callable[[], Run] | None = None
    values: Callable[[int], Mapping[str, float]] | None = field(default=None, kw_only=True)
    before: Callable[[], Run] | None = field(default=None, kw_only=True)
    part: str = field(default="", kw_only=True)
    line: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        if (self.run is None) == (self.values is None):
            raise OptionError(f"entry {self.label!r} needs one of run and values")
        if self.before is not None and self.run is None:
            raise OptionError(f"entry {self.label!r} trains something before it, and needs a run")

    @property
    def name(self) -> str:
        return named(self.part, self.label)


@dataclass(frozen=True, kw_only=True)
class Expected:
    """`of`'s measure less that of `beside`, or alone, lies between `least` and `most`: a bound on a mean over seeds.

    measure: of Finding.measures; the task's metric by default. ratio: `of` by `beside`, and the bounds are factors.
    """

    of: str
    beside: str | None = None
    measure: str | None = None
    least: float = -math.inf
    most: float = math.inf
    ratio: bool = False


def above(
    of: str, beside: str, *, by: float = 0.0, measure: str | None = None, ratio: bool = False
) -> Expected:
    """More by `by`; a negative one says "hardly less". With `ratio`, `by` is a factor."""
    return Expected(of=of, beside=beside, measure=measure, least=_bound(by, ratio), ratio=ratio)


def below(
    of: str, beside: str, *, by: float = 0.0, measure: str | None = None, ratio: bool = False
) -> Expected:
    """Less by `by`: better, where the measure is a cost. With `ratio`, by more than the factor `by`."""
    most = 1 / _bound(by, ratio) if ratio else 0.0 - by
    return Expected(of=of, beside=beside, measure=measure, most=most, ratio=ratio)


def near(of: str, beside: str, *, within: float, measure: str | None = None) -> Expected:
    return Expected(of=of, beside=beside, measure=measure, least=-within, most=within)


def reaches(of: str, least: float, *, measure: str | None = None) -> Expected:
    return Expected(of=of, measure=measure, least=least)


def stays_below(of: str, most: float, *, measure: str | None = None) -> Expected:
    return Expected(of=of, measure=measure, most=most)


def _bound(by: float, ratio: bool) -> float:
    return (by or 1.0) if ratio else by


@dataclass(frozen=True)
class Claim:
    """A published statement, its source, and the results that would agree with it: all of `expected`.

    when: what must hold for the claim to be judged at all, in the same terms. Without it the page says "cannot tell at
    this budget": that softmax attention beats a model that mixes nothing, for example, before mechanisms are compared.
    withdrawn: why the comparison is unfair, with the number that shows it. It replaces the verdict wherever that is shown.
    """

    text: str
    source: str
    expected: tuple[Expected, ...]
    when: tuple[Expected, ...] = ()
    withdrawn: str = ""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Raises OptionError where two entries share a name, UnknownNameError where a claim names none.

    rates: learning rates. Each entry is trained with each from the first seed, the best on validation is kept, and
    the other seeds use it; none leaves the run's own. measures: more numbers, of the trained model.
    shown: the measures in table and figure; all by default. x: the measure on the figure's x axis, logarithmic.
    limits: what such small runs cannot say.
    """

    name: str
    about: str
    entries: tuple[Entry, ...]
    claims: tuple[Claim, ...] = ()
    seeds: tuple[int, ...] = (0, 1, 2)
    rates: tuple[float, ...] = ()
    measures: Callable[[Fitted], Mapping[str, float]] | None = None
    shown: tuple[str, ...] = ()
    x: str | None = None
    limits: tuple[str, ...] = ()
    method: str = ""

    def __post_init__(self) -> None:
        names = [entry.name for entry in self.entries]
        if not names:
            raise OptionError(f"finding {self.name} needs entries")
        for name in names:
            if names.count(name) > 1:
                raise OptionError(f"finding {self.name} has two entries {name!r}")
        for claim in self.claims:
            for expected in (*claim.expected, *claim.when):
                for name in filter(None, (expected.of, expected.beside)):
                    if name not in names:
                        raise UnknownNameError(f"entry of {self.name}", name, names)

    def details(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "about": self.about,
            "entries": [entry.name for entry in self.entries],
            "claims": [f"{claim.text} ({claim.source})" for claim in self.claims],
        }
