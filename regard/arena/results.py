"""The typed rows that the arena produces, the ledger keeps, and the report draws."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Literal

Pass = Literal["forward", "train", "decode"]


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Where a number comes from."""

    commit: str  # of the working tree, with "+changes" when it is not clean; "unknown" outside a checkout
    command: str
    device: str  # as a person would name it: "AMD EPYC 7B13, 2 threads"
    threads: int
    dtype: str
    versions: dict[str, str]  # python, torch, regard
    started: str  # ISO 8601, UTC


@dataclass(frozen=True, kw_only=True)
class Trained:
    """One model trained on one task."""

    task: str
    mixer: str
    seed: int
    options: dict[str, Any]
    metric: str
    value: float  # of the test split, at the best validation checkpoint
    better: Literal["higher", "lower"]
    parameters: int
    steps: int
    tokens: int  # seen in training
    seconds: float
    tokens_per_second: float
    data_sha256: str
    provenance: Provenance
    curve: list[tuple[int, float]] = field(default_factory=list)  # (step, validation metric)


@dataclass(frozen=True, kw_only=True)
class Timed:
    """One pass of one mixer at one length, beside fused softmax attention in the same run, interleaved."""

    mixer: str
    options: dict[str, Any]
    kind: Pass
    length: int  # for decode: tokens already in the state
    batch: int
    dim: int
    num_heads: int
    causal: bool
    median_ms: float
    low_ms: float  # quartiles
    high_ms: float
    baseline_ms: float  # median of softmax (same causality) in the same interleaved run
    peak_bytes: int  # live tensor bytes at the highest point, beyond parameters and input; decode: with the state
    rounds: int
    provenance: Provenance
    flops: int | None = None  # counted, of one pass

    @property
    def ratio(self) -> float:
        """Time relative to fused softmax attention: below 1 is faster."""
        return self.median_ms / self.baseline_ms


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """A pair that cannot or may not run, with its reason."""

    mixer: str
    subject: str  # a task's name, or a Pass
    reason: str


@dataclass(frozen=True, kw_only=True)
class Checked:
    """The laws of one mixer, with these options and this state of the source."""

    mixer: str
    options: dict[str, Any]
    source_sha256: str  # of the package's Python files
    failed_law: str | None  # None: it keeps them all
    message: str
    seconds: float
    provenance: Provenance


Result = Trained | Timed | NotRun | Checked


def current(results: Iterable[Result]) -> list[Result]:
    """The newest row on each subject, in the order in which subjects first appeared.

    A mixer that could not run on a task, and later did, is a result and no longer an absence; so is the reverse.
    """
    newest: dict[tuple, Result] = {}
    for result in results:
        mixer = (result.mixer, repr(sorted(getattr(result, "options", {}).items())))
        match result:
            case Trained():
                _forget(newest, result.mixer, result.task)
                newest[("trained", *mixer, result.task, result.seed)] = result
            case Timed():
                _forget(newest, result.mixer, result.kind)
                place = (result.length, result.batch, result.dim, result.causal, result.provenance.device)
                newest[("timed", *mixer, result.kind, *place)] = result
            case NotRun():
                for key, other in list(newest.items()):
                    if other.mixer == result.mixer and result.subject in (_subject(other), None):
                        del newest[key]
                newest[("not run", result.mixer, result.subject)] = result
            case Checked():
                newest[("checked", *mixer)] = result
    return list(newest.values())


def _forget(newest: dict[tuple, Result], mixer: str, subject: str) -> None:
    newest.pop(("not run", mixer, subject), None)


def _subject(result: Result) -> str | None:
    match result:
        case Trained(task=subject) | Timed(kind=subject) | NotRun(subject=subject):
            return subject
    return None
