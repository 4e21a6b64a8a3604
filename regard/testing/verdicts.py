"""Verdicts of laws (passed, failed, cannot judge, does not apply), and the loop that runs laws."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any, Literal, TypeVar

from torch import Tensor

from regard.core import OptionError, UnknownNameError, blamed, limited

Outcome = Literal["passed", "failed", "cannot judge", "does not apply"]


class LawError(AssertionError):
    """A law is broken; the text starts with the law's name."""


class NotDeclared(Exception):
    """The law proves something that the subject does not declare."""


@dataclass(frozen=True)
class Verdict:
    """One law on one subject. `sentence` says what failed, what could not be judged and why, or what is not declared.

    errors: of every comparison of numbers, the worst element as a part of what the law allows; above one fails.
    """

    law: str
    outcome: Outcome
    seconds: float  # that the law took
    sentence: str = ""
    cause: BaseException | None = field(default=None, compare=False, repr=False)
    errors: tuple[float, ...] = field(default=(), compare=False, repr=False)


_errors: ContextVar[list[float] | None] = ContextVar("errors", default=None)


class Checked(list[str]):
    """Names of the laws that were run and not broken, with the verdict of each."""

    def __init__(self, verdicts: Iterable[Verdict]):
        self.verdicts = tuple(verdicts)
        super().__init__(verdict.law for verdict in self.verdicts)

    def of(self, outcome: Outcome) -> dict[str, str]:
        """Law -> sentence, for the laws with this outcome."""
        return {v.law: v.sentence for v in self.verdicts if v.outcome == outcome}


class Judged:
    """Base of what laws are run on: a name, and the notes of the law that is running."""

    name: str

    def __init__(self):
        self.notes: list[str] = []

    def cannot_judge(self, what: str) -> None:
        """Note a part that this law leaves unjudged, and why; the law goes on with the rest."""
        self.notes.append(what)


Laws = str | Iterable[str]
"""All laws ("all"), one or several, by name."""

S = TypeVar("S", bound=Judged)
Law = Callable[[S], None]
"""A function of a subject, which raises LawError where the subject breaks it."""


def by_name(*laws: Law[S]) -> dict[str, Law[S]]:
    """Laws by the names of their functions."""
    return {law.__name__: law for law in laws}


def named(laws: Laws, known: Mapping[str, Law[S]]) -> dict[str, Law[S]]:
    """The laws of these names. Raises UnknownNameError, and OptionError for none."""
    names = list(known) if laws == "all" else [laws] if isinstance(laws, str) else list(laws)
    if not names:
        raise OptionError('laws must be "all" or name some, got none')
    for name in names:
        if name not in known:
            raise UnknownNameError("law", name, known)
    return {name: known[name] for name in names}


def judge(subject: S, laws: Mapping[str, Law[S]]) -> Iterator[Verdict]:
    """Run each law; a broken one does not keep the others from being run, but one that does not end within LIMIT seconds does."""
    for name, law in laws.items():
        subject.notes.clear()
        outcome: Outcome = "passed"
        sentence = ""
        cause = None
        began = perf_counter()
        errors = list[float]()
        token = _errors.set(errors)
        try:
            with limited():
                law(subject)
        except NotDeclared as error:
            outcome = "does not apply"
            sentence = str(error)
        except LawError as error:
            outcome = "failed"
            sentence = str(error)
        except (Exception, SystemExit) as error:
            sentence = blamed(error) or f"{type(error).__name__}: {error}"
            outcome = "failed"
            cause = error
        else:
            if subject.notes:
                outcome = "cannot judge"
                sentence = "; ".join(dict.fromkeys(subject.notes))
        _errors.reset(token)
        yield Verdict(name, outcome, perf_counter() - began, sentence, cause, tuple(errors))
        if isinstance(cause, TimeoutError):
            return


def require_kept(subject: S, laws: Mapping[str, Law[S]]) -> Checked:
    """Verdicts of the laws, of which none may be a failure. Raises LawError at the first that is."""
    kept = []
    for verdict in judge(subject, laws):
        if verdict.outcome == "failed":
            raise LawError(f"{verdict.law}: {subject.name}: {verdict.sentence}") from verdict.cause
        kept.append(verdict)
    return Checked(kept)


def require(condition: Any, what: str) -> None:
    if not condition:
        raise LawError(what)


def require_close(actual: Tensor, expected: Tensor, bound: float, what: str) -> None:
    """Worst element within `bound`, relative to the largest expected value where that exceeds one."""
    if actual.shape != expected.shape:
        raise LawError(f"{what}: shape {list(actual.shape)} instead of {list(expected.shape)}")
    if actual.numel() == 0:
        return
    scale = max(1.0, expected.detach().abs().max().item())
    error = (actual - expected).detach().abs().max().item()
    if (errors := _errors.get()) is not None:
        errors.append(error / (bound * scale) if bound else float(error > 0))
    if not error <= bound * scale:
        raise LawError(f"{what}: differs by {error:.2e}, allowed {bound * scale:.0e}")
