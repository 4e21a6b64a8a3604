"""Which mechanism for a length and its needs: capabilities first, then what a ledger holds, as a ranking with reasons.

Times and memory at a length that was not measured follow from growth that is fitted to the lengths that were. With an
empty ledger there are only capabilities and declared costs.
"""

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import lru_cache

import numpy as np

from regard.core import OptionError, UnknownNameError
from regard.core.capabilities import growth
from regard.core.shapes import check_positive
from regard.lab.arena import speed
from regard.lab.arena.report import words
from regard.lab.arena.report.summary import LEVEL, LedgerSummary
from regard.lab.experiment.entry import Choice
from regard.lab.experiment.ledger import Ledger, trial_key
from regard.lab.experiment.provenance import describe, provenance, versions
from regard.lab.experiment.row import Pass, Result, Timed, Trained
from regard.mixers import MIXERS

FURTHEST = 2**20  # tokens, to which growth is followed
ROUGH = 2048  # tokens at which `measure` ends
DIM, HEADS = 256, 4
LARGEST_ERROR = 500.0  # of a logarithm: nothing is known beyond it
BY_GROWTH = ", by growth"


@dataclass(frozen=True, kw_only=True)
class Case:
    """The requirements on one block.

    length: tokens. memory: bytes at most, beyond parameters and input, at the ledger's batch and width.
    """

    length: int
    causal: bool = False
    cross: bool = False
    padding: bool = False
    decode: bool = False  # token by token, after `length` others
    train: bool = False  # by the time of a training step, rather than of a forward pass
    memory: float | None = None
    task: str | None = None  # by whose quality it is judged

    def __post_init__(self) -> None:
        check_positive(length=self.length)
        if self.memory is not None and not self.memory > 0:
            raise OptionError(f"memory ({self.memory}) must be positive")
        if self.decode and (self.train or self.cross):
            raise OptionError("decode cannot be joined with train or cross: time them apart")

    @property
    def kind(self) -> Pass:
        return "decode" if self.decode else "train" if self.train else "forward"

    @property
    def needs(self) -> list[str]:
        """Names of the capabilities."""
        wanted = {
            "streaming": self.decode,
            "causal": self.causal or self.decode,
            "bidirectional": not (self.causal or self.decode or self.cross),
            "cross": self.cross,
            "padding": self.padding,
        }
        return [name for name, is_wanted in wanted.items() if is_wanted]


@dataclass(frozen=True)
class Estimate:
    """A number at a length. error: of its logarithm, about the relative error; None where one length alone was measured."""

    value: float
    error: float | None
    measured: bool  # at this length itself

    @property
    def low(self) -> float:
        return self.value * math.exp(-min(self.error or 0.0, LARGEST_ERROR))

    @property
    def high(self) -> float:
        return self.value * math.exp(min(self.error or 0.0, LARGEST_ERROR))


@dataclass(frozen=True)
class Growth:
    """value(n) = a + b n + c n^p with a, b, c >= 0 and p declared, fitted to (length, value) by relative error."""

    points: tuple[tuple[int, float], ...]  # by length
    power: float
    spread: float = 0.0  # of one measurement, as an error

    def at(self, length: int) -> Estimate:
        """Beyond the longest length the error is that of predicting the longest from the others, for each such step."""
        known = dict(self.points)
        if length in known:
            return Estimate(known[length], self.spread, True)
        return Estimate(_fitted(self.points, self.power, length), self._error(length), False)

    def _error(self, length: int) -> float | None:
        if len(self.points) < 2:
            return None
        others, (last, value) = self.points[:-1], self.points[-1]
        missed = abs(math.log(_fitted(others, self.power, last) / value))
        step = math.log(last / others[-1][0])
        steps = max(1.0, math.log(length / last) / step) if length > last else 1.0
        within = max(abs(math.log(_fitted(self.points, self.power, n) / v)) for n, v in self.points)
        return max(missed * steps if length > last else 0.0, within, self.spread)


def _fitted(points: tuple[tuple[int, float], ...], power: float, length: int) -> float:
    n0 = points[-1][0]
    return max(sum(part * (length / n0) ** p for p, part in _parts(points, power)), 1e-12)


@lru_cache(maxsize=1024)
def _parts(points: tuple[tuple[int, float], ...], power: float) -> list[tuple[float, float]]:
    """(power, part) of the value at the longest length."""
    from scipy.optimize import nnls

    powers = list(dict.fromkeys([power, 0.0, 1.0]))[: len(points)]
    n, v = np.array(points, dtype=float).T
    columns = np.stack([(n / n[-1]) ** p for p in powers], 1) / v[:, None]
    parts, _ = nnls(columns, np.ones(len(v)))
    return list(zip(powers, parts.tolist(), strict=True))


@dataclass(frozen=True)
class Crossover:
    """From which length on a mechanism is faster than softmax. `at` None: not up to `reach`; low and high None: beyond it."""

    at: float | None
    low: float | None
    high: float | None
    reach: int
    measured: bool  # between measured lengths, rather than by growth

    def __str__(self) -> str:
        if self.at is None:
            return f"not up to {self.reach:,}"
        ends = [f"over {self.reach:,}" if n is None else _round(n) for n in (self.low, self.high)]
        about = _round(self.at) + (f" ({ends[0]} to {ends[1]})" if ends[0] != ends[1] else "")
        return about if self.measured else about + BY_GROWTH


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A mechanism that can do what is wanted; None where the ledger does not say."""

    mechanism: str
    cost: str  # declared, of time
    declared_memory: str
    ms: Estimate | None = None
    ratio: Estimate | None = None  # of time to softmax
    bytes: Estimate | None = None
    crossover: Crossover | None = None
    quality: dict[
        str, tuple[float, bool]
    ]  # task -> mean over seeds, and whether it is as good as the best
    causal: bool | None = None  # as timed

    @property
    def as_good(self) -> bool | None:
        """On every task that counts; None where it was trained on none."""
        return all(good for _, good in self.quality.values()) if self.quality else None

    @property
    def wins(self) -> bool:
        """Faster than softmax by more than 5 %, and beyond the error."""
        return self.ratio is not None and max(self.ratio.high, self.ratio.value / (1 - LEVEL)) < 1


@dataclass(frozen=True, kw_only=True)
class Recommendation:
    case: Case
    sentence: str
    choice: str | None
    ranked: list[Candidate]  # the fastest first, then those without a timing by declared growth
    excluded: dict[str, str]  # mechanism -> why
    notes: list[str]


def recommend(
    case: Case, rows: Sequence[Result] = (), choices: Sequence[Choice] = ()
) -> Recommendation:
    """From these rows of a ledger. `choices` come beside the catalogue's mixers: one's own.

    Raises UnknownNameError for a task of which there is no result.
    """
    summary = _summary(rows, choices)
    if case.task is not None and case.task not in summary.tasks:
        more = (f"{case.task} (", f"{case.task}, ")  # and its file, or its place
        own = [task for task in summary.tasks if task.startswith(more)]
        if len(own) != 1:
            raise UnknownNameError("trained task", case.task, own or summary.tasks)
        case = replace(case, task=own[0])
    excluded: dict[str, str] = {}
    able: list[Candidate] = []
    broken = {summary.name(row): row.message for row in summary.checked if row.failed_law}
    for label, choice in _choices(summary, choices).items():
        why = f"breaks a law. {broken[label]}" if label in broken else _obstacle(case, choice)
        if why is None:
            found = _candidate(case, summary, label, choice)
            if case.memory is not None and found.bytes and found.bytes.value > case.memory:
                needed, most = words.size(found.bytes.value), words.size(case.memory)
                why = f"needs {needed} at {case.length:,} tokens, and {most} are allowed"
            else:
                able.append(found)
        if why is not None:
            excluded[label] = why
    ranked = sorted(able, key=lambda found: _rank(case, found))
    sentence, choice_name = _sentence(case, summary, ranked)
    return Recommendation(
        case=case,
        sentence=sentence,
        choice=choice_name,
        ranked=ranked,
        excluded=excluded,
        notes=_notes(case, summary, ranked),
    )


def crossover(summary: LedgerSummary, label: str, kind: Pass) -> Crossover | None:
    """Between measured lengths where it is there, or else by growth beyond them; None where nothing is measured."""
    rows = _timings(summary, label, kind, None)
    inside = summary.overtaking(label, kind)
    if not rows or inside is None:
        return None
    if inside.at is not None:
        low, high = inside.between or (inside.at, inside.at)
        return Crossover(inside.at, low, high, inside.last, True)
    if len(rows) < 2:
        return Crossover(None, None, None, inside.last, True)
    own, base = _growth_of_time(rows, "median_ms"), _growth_of_time(rows, "baseline_ms")
    lengths = np.unique(np.geomspace(inside.last, FURTHEST, 200).astype(int)).tolist()
    ratios = [_over(own.at(n), base.at(n)) for n in lengths]
    at, low, high = (
        _stays_below(lengths, [getattr(ratio, end) for ratio in ratios])
        for end in ("value", "low", "high")
    )
    return Crossover(at, low, high, FURTHEST, False)


def measure(
    case: Case, ledger: Ledger, choices: Sequence[Choice] = (), *, seconds: float = 8.0
) -> list[Timed]:
    """Rough timings of everything that can do the case, beside fused softmax, put into the ledger: about a minute.

    Four lengths up to the case's own, and to no more than 2,048. The laws are not run. `seconds` go to each length.
    """
    import torch

    device = "cuda" if torch.cuda.is_available() else "cpu"
    able = [
        choice
        for choice in _choices(_summary(ledger.results(), choices), choices).values()
        if _obstacle(case, choice) is None
    ]
    top = min(case.length, ROUGH)
    rows: list[Timed] = []
    for length in sorted({max(top // part, 8) for part in (16, 4, 2, 1)}):
        setting = speed.Setting(
            kind=case.kind,
            length=length,
            dim=DIM,
            num_heads=HEADS,
            device=device,
            causal=None if case.decode else case.causal,
            seconds=seconds,
            unit="block",
        )
        origin = provenance(device=device, dtype=setting.dtype)
        timed = speed.measure(able, setting, origin)
        for choice, row in zip(able, timed, strict=True):
            about = {"kind": "timed", "setting": asdict(setting), "started": origin.started}
            where = {"machine": describe(device)} | versions()
            ledger.put(trial_key(about | choice.identity() | where), row)
        rows += timed
    return rows


def _summary(rows: Sequence[Result], own: Sequence[Choice]) -> LedgerSummary:
    """Of one's own mixers, results of their present source alone."""
    return LedgerSummary(rows, present={choice.name: choice.source for choice in own})


def _choices(summary: LedgerSummary, own: Sequence[Choice]) -> dict[str, Choice]:
    """Label -> choice: what was measured, with its options, and the rest of the catalogue."""
    classes = {choice.name: choice for choice in own}
    found: dict[str, Choice] = {}
    for row in summary.rows:
        label = summary.label(row)
        if label is not None and isinstance(row, Timed | Trained):
            base = classes.get(row.mixer, Choice(mixer=row.mixer))
            if row.mixer in MIXERS or row.mixer in classes:
                found[label] = replace(base, options=row.options)
    present = {choice.name for choice in found.values()}
    rest = [*own, *(Choice(mixer=name) for name in MIXERS.names())]
    return found | {choice.name: choice for choice in rest if choice.name not in present}


def _obstacle(case: Case, choice: Choice) -> str | None:
    """Why it cannot do what is wanted, or cannot be built for this length."""
    try:
        sketch = choice.sketch(dim=DIM, num_heads=HEADS, max_len=case.length + 16)
    except OptionError as error:
        return str(error)
    reasons = (choice.refusal(sketch, need) for need in case.needs)
    return next((reason for reason in reasons if reason is not None), None)


def _candidate(case: Case, summary: LedgerSummary, label: str, choice: Choice) -> Candidate:
    can = choice.sketch(dim=DIM, num_heads=HEADS, max_len=case.length + 16).capabilities
    decoding = case.kind == "decode"
    cost = (can.state or can.time) if decoding else can.time
    memory = (can.state or can.memory) if decoding else can.memory
    tasks = [case.task] if case.task else [t for t in summary.tasks if _counts(case, summary, t)]
    good = {task: {quality.mechanism for quality in summary.as_good(task)} for task in tasks}
    quality = {
        task: (summary.quality[task, label].mean, label in good[task])
        for task in tasks
        if (task, label) in summary.quality
    }
    found = Candidate(mechanism=label, cost=cost, declared_memory=memory, quality=quality)
    rows = _timings(summary, label, case.kind, case.causal or decoding)
    if not rows:
        return found
    own, base = (
        _growth_of_time(rows, "median_ms", cost),
        _growth_of_time(rows, "baseline_ms"),
    )
    peaks = tuple((row.length, float(max(row.peak_bytes, 1))) for row in rows)
    return Candidate(
        **vars(found)
        | {
            "ms": own.at(case.length),
            "ratio": _over(own.at(case.length), base.at(case.length))
            if not summary.is_baseline(label)
            else Estimate(1.0, 0.0, case.length in summary.lengths(case.kind)),
            "bytes": Growth(peaks, _power(memory)).at(case.length),
            "crossover": None
            if summary.is_baseline(label)
            else crossover(summary, label, case.kind),
            "causal": rows[-1].causal,
        }
    )


def _counts(case: Case, summary: LedgerSummary, task: str) -> bool:
    """Language models count for causal cases, all other tasks for the others."""
    return summary.is_language(task) == (case.causal or case.decode)


def _timings(summary: LedgerSummary, label: str, kind: Pass, causal: bool | None) -> list[Timed]:
    """By length, all of one causality: this, or where there is none the other, whose ratios are to the same."""
    found = [summary.timing(label, kind, n, causal) for n in summary.lengths(kind)]
    rows = [row for row in found if row is not None]
    return [row for row in rows if row.causal == rows[-1].causal]


def _growth_of_time(rows: Sequence[Timed], name: str, cost: str | None = None) -> Growth:
    """Softmax's for the baseline."""
    power = _power(cost or MIXERS["softmax"].capabilities.time)
    if rows[0].kind == "decode" and cost is None:
        power = 1.0
    points = tuple((row.length, float(getattr(row, name))) for row in rows)
    spread = max(
        abs(math.log(max(row.high_ms, 1e-12) / max(row.low_ms, 1e-12))) / 2 for row in rows
    )
    return Growth(points, power, spread)


def _power(cost: str) -> float:
    return growth(cost, 2**12, 2**16)


def _over(own: Estimate, base: Estimate) -> Estimate:
    error = None if own.error is None or base.error is None else max(own.error, base.error)
    return Estimate(own.value / base.value, error, own.measured and base.measured)


def _stays_below(lengths: Sequence[int], ratios: Sequence[float]) -> float | None:
    above = [place for place, ratio in enumerate(ratios) if ratio >= 1]
    if not above:
        return float(lengths[0])
    return None if above[-1] == len(lengths) - 1 else float(lengths[above[-1] + 1])


def _rank(case: Case, found: Candidate) -> tuple[bool, float, str]:
    ratio = math.inf if found.ratio is None else found.ratio.value
    return found.ratio is None, ratio if found.ratio else _power(found.cost), found.mechanism


def _sentence(
    case: Case, summary: LedgerSummary, ranked: Sequence[Candidate]
) -> tuple[str, str | None]:
    timed = [found for found in ranked if found.ratio is not None]
    others = [found for found in timed if not summary.is_baseline(found.mechanism)]
    if not ranked:
        return "Nothing in the catalogue can do all of this; the reasons are below.", None
    if not others:
        slower = [f.mechanism for f in ranked if _power(f.cost) < 1.95 and f.mechanism != "softmax"]
        said = f" By declared cost {words.joined(slower[:3])} grow more slowly." if slower else ""
        return (
            f"Use fused softmax until something is measured: the ledger has no timing of another "
            f"mechanism for this, and --measure takes some in about a minute.{said}",
            "softmax",
        )
    known = case.task is not None or any(found.quality for found in others)
    fit = [found for found in others if (found.as_good if known else True)]
    winners = [found for found in fit if found.wins]
    if winners:
        best = winners[0]
        assert best.ratio is not None
        ends = (words.times(best.ratio.high), words.times(best.ratio.low))
        error = "" if ends[0] == ends[1] else f" ({ends[0]} to {ends[1]})"
        quality = (
            f"as good as the best on {words.joined(list(best.quality))}"
            if best.quality
            else "with a quality that nothing here has measured"
        )
        level = [
            found.mechanism
            for found in winners[1:]
            if found.ratio and found.ratio.value < best.ratio.value * (1 + LEVEL)
        ]
        also = f" {words.joined(level)} about as fast." if level else ""
        how = "measured" if best.ratio.measured else "by fitted growth"
        return (
            f"Use {best.mechanism}: {words.times(best.ratio.value)} as fast as fused softmax at "
            f"{case.length:,} tokens{error}, {how}, {quality}.{also}",
            best.mechanism,
        )
    if not any(summary.is_baseline(found.mechanism) for found in ranked):
        best = (fit or others)[0]
        return (
            f"Use {best.mechanism}: fused softmax cannot do this, for the reason below.",
            best.mechanism,
        )
    later = [
        (found.crossover.at, found.mechanism)
        for found in fit
        if found.crossover and found.crossover.at is not None and found.crossover.at > case.length
    ]
    if later:
        at, name = min(later)
        return (
            f"Use fused softmax: nothing wins below N = {_round(at)}, where {name} does.",
            "softmax",
        )
    good = " as good" if known else ""
    return f"Use fused softmax: nothing{good} wins at {case.length:,} tokens.", "softmax"


def _notes(case: Case, summary: LedgerSummary, ranked: Sequence[Candidate]) -> list[str]:
    notes = list(summary.notes)
    timed = [found for found in ranked if found.ratio is not None]
    if not timed:
        return ["No timing for this in the ledger: capabilities and declared costs only.", *notes]
    row = next(iter(summary.timed.values()))
    notes.append(
        f"{words.UNIT_NAMES[row.unit].capitalize()}, batch {row.batch}, dim {row.dim}, {row.num_heads} heads, {row.provenance.device}; "
        f"measured at {', '.join(f'{n:,}' for n in summary.lengths(case.kind))} tokens."
    )
    other = [found.mechanism for found in timed if found.causal != (case.causal or case.decode)]
    if other:
        notes.append(
            f"Timed {'without' if case.causal else 'with'} a causal mask, as was the softmax beside them: "
            f"{', '.join(other)}."
        )
    whole = [
        f.mechanism
        for f in timed
        if f.mechanism in MIXERS and MIXERS[f.mechanism].capabilities.includes_ffn
    ]
    if whole and row.unit == "layer":
        notes.append(
            f"With their feed-forward layer, which softmax has beside it: {', '.join(whole)}."
        )
    if case.cross:
        notes.append("Timed on one sequence; with a context of its own the time is another.")
    if unproved := [f.mechanism for f in timed if f.quality == {}]:
        notes.append(f"Quality is not known here of {', '.join(unproved)}.")
    return notes


def _round(value: float) -> str:
    """To two digits."""
    return f"{float(f'{value:.2g}'):,.0f}"
