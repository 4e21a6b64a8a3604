"""The typed rows that the arena produces, the ledger keeps, and the report draws."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from regard.models.sizing import TOLERANCE

Pass = Literal["forward", "train", "prefill", "decode"]
Unit = Literal["block", "layer"]
"""The timed unit: mechanism and feed-forward layer at equal parameters, or the bare layer."""


@dataclass(frozen=True, kw_only=True)
class Provenance:
    """Origin of a number."""

    commit: str  # of the working tree, with "+changes" when it is not clean; "unknown" outside a checkout
    command: str
    device: str  # as a person would name it: "AMD EPYC 7B13, 2 threads"
    threads: int
    dtype: str
    versions: dict[str, str]  # python, torch, regard
    started: str  # ISO 8601, UTC
    allocator: str = "unknown"  # "default", or the settings that differ from it


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
    length: int | None = None  # of the task's longest input, tokens
    rate: float | None = None  # learning rate
    valid_value: float | None = None  # by which the rate is chosen
    causal: bool | None = None  # whether the mechanism saw earlier tokens alone
    source: str | None = (
        None  # of the mixer's code, by `regard.lab.arena.source`; None: an earlier version's row
    )
    task_source: str | None = None  # of the task's


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
    impl: str = "plain"  # what computed, where a mechanism has implementations to choose from
    flops: int | None = None  # counted, of one pass
    matrix_rate: float | None = (
        None  # operations a second of a large matrix product in the same run
    )
    unit: Unit = "layer"
    parameters: int | None = None
    baseline_parameters: int | None = None  # of softmax's
    source: str | None = None  # as in Trained

    @property
    def ratio(self) -> float:
        """Time relative to fused softmax attention: below 1 is faster."""
        return self.median_ms / self.baseline_ms

    @property
    def is_equal(self) -> bool:
        """True if the block has as many parameters as softmax's, within 10 %; a bare layer may have any number."""
        if self.unit == "layer" or not self.parameters or not self.baseline_parameters:
            return True
        return abs(self.parameters / self.baseline_parameters - 1) <= TOLERANCE

    @property
    def share(self) -> float | None:
        """Share of the machine's matrix-product rate; projections and recomputation count. None where nothing is counted."""
        if not self.flops or not self.matrix_rate:
            return None
        return self.flops / (1e-3 * self.median_ms * self.matrix_rate)


@dataclass(frozen=True, kw_only=True)
class NotRun:
    """A pair that cannot or may not run, with its reason."""

    mixer: str
    subject: str  # a task's name, or a Pass
    reason: str
    options: dict[str, Any] = field(default_factory=dict)
    source: str | None = None  # as in Trained


@dataclass(frozen=True, kw_only=True)
class LawsChecked:
    """The laws of one mixer, with these options and this state of the source."""

    mixer: str
    options: dict[str, Any]
    source_sha256: str  # of the package's Python files
    failed_law: str | None  # None: it keeps them all
    message: str
    seconds: float
    provenance: Provenance
    source: str | None = None  # of the mixer's code, as in Trained


@dataclass(frozen=True, kw_only=True)
class Tried:
    """One entry of a finding (`regard.lab.findings`), from one seed. The arena's page does not draw it."""

    finding: str
    entry: str
    seed: int
    rate: float | None  # learning rate; None where nothing was trained
    task: str
    metric: str
    better: Literal["higher", "lower"]
    value: (
        float | None
    )  # of the test split, at the best validation checkpoint; None with a `reason`
    valid_value: float | None
    values: dict[str, float]  # what else was measured
    parameters: int
    steps: int
    tokens: int  # seen in training
    seconds: float
    data_sha256: str
    config: dict[str, Any]  # task, model and training
    provenance: Provenance
    curve: list[tuple[int, float]] = field(default_factory=list)  # (step, validation metric)
    reason: str | None = None  # why there is no value


Result = Trained | Timed | NotRun | LawsChecked
Engine = tuple[str, str]  # versions of regard and torch
Row = Result | Tried


def of_one_source(
    results: Iterable[Result], present: Mapping[str, str] | None = None
) -> tuple[list[Result], list[Result]]:
    """The results of one engine and of one source for each mixer, the newest that is known, and the old ones.

    The engine is the versions of regard and torch. present: mixer -> its source now, where a caller knows it.
    """
    rows = list(results)
    engines: list[tuple[tuple, Engine]] = []
    sources: dict[str, list[tuple[tuple, str | None]]] = {}
    for place, row in enumerate(rows):
        started = "" if isinstance(row, NotRun) else row.provenance.started
        newness = (row.source is not None, started, place)
        sources.setdefault(row.mixer, []).append((newness, row.source))
        if isinstance(row, Trained | Timed):
            engines.append((newness, engine(row.provenance)))
    newest: dict[str, str | None] = {mixer: max(found)[1] for mixer, found in sources.items()}
    newest |= present or {}
    latest = max(engines)[1] if engines else None

    def counts(row: Result) -> bool:
        same = isinstance(row, NotRun | LawsChecked) or engine(row.provenance) == latest
        return same and row.source == newest[row.mixer]

    return list(filter(counts, rows)), [row for row in rows if not counts(row)]


def engine(origin: Provenance) -> Engine:
    """Versions on which a result depends; torch's without its build, which goes with the device."""
    torch = origin.versions.get("torch", "unknown").partition("+")[0]
    return origin.versions.get("regard", "unknown"), torch


def current(results: Iterable[Result]) -> list[Result]:
    """The newest row on each subject, in the order in which subjects first appeared; absences at the end.

    A mixer that could not run on a task, and later did, is a result and no longer an absence; so is the reverse. When
    its laws are run anew, the absences found before are forgotten.
    """
    newest: dict[tuple, Result] = {}
    absent: dict[tuple, NotRun] = {}
    for result in results:
        who, subject = _who(result), _subject(result)
        match result:
            case NotRun():
                absent[who, subject] = result
                continue
            case Trained():
                place: tuple = (result.seed, result.rate)
            case Timed():
                place = (
                    result.length,
                    result.batch,
                    result.dim,
                    result.causal,
                    result.unit,
                    result.provenance.device,
                )
            case LawsChecked():
                absent = {key: row for key, row in absent.items() if key[0] != who}
                place = ()
        absent.pop((who, subject), None)
        newest[who, subject, place] = result
    return [
        row for (who, subject, _), row in newest.items() if (who, subject) not in absent
    ] + list(absent.values())


def tuned(rows: Sequence[Trained]) -> list[Trained]:
    """Rows of one mechanism on one task: those at the learning rate that was best on validation, from the seed with most rates."""
    tried: dict[int, dict[float | None, Trained]] = {}
    for row in rows:
        if row.valid_value is not None:
            tried.setdefault(row.seed, {})[row.rate] = row
    if not tried:
        return list(rows)
    most = max(tried.values(), key=len)
    better = max if rows[0].better == "higher" else min
    best = better(most.values(), key=lambda row: row.valid_value or 0.0)
    return [row for row in rows if row.rate == best.rate]


def _who(result: Result) -> tuple[str, str]:
    return result.mixer, repr(sorted(result.options.items()))


def _subject(result: Result) -> str:
    match result:
        case Trained():
            return result.task
        case Timed():
            return result.kind
        case NotRun():
            return result.subject
    return "laws"
