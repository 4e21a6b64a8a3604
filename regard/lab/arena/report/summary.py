"""One reading of the ledger, shared by the terminal table, the page and the picture.

Nothing here is measured again and nothing is filled in. Where two rows answer the same question the newer one
counts; timings of one machine are never set beside those of another; whatever is left out is named in `notes`, and
what was not measured in `missing`.
"""

import json
import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from statistics import fmean, median, stdev
from typing import Any, Literal, TypeVar, get_args

from regard.lab.arena.report.crossing import LEVEL, Crossing, crossing
from regard.lab.arena.results import (
    LawsChecked,
    NotRun,
    Pass,
    Result,
    Timed,
    Trained,
    Unit,
    current,
    engine,
    of_one_source,
    tuned,
)
from regard.mixers import MIXERS

PASSES: tuple[Pass, ...] = get_args(Pass)
UNITS: tuple[Unit, ...] = get_args(Unit)
BASELINE = "softmax"
TOLERANCE = (
    0.02  # of the best quality: what a faster mechanism may lose and still be called as good
)
MOST_FREEDOM = 30
Measured = TypeVar("Measured", Trained, Timed)
LANGUAGE_METRICS = {"bits_per_byte", "bits_per_character", "perplexity"}


@dataclass(frozen=True, kw_only=True)
class Quality:
    """One mechanism on one task, over its seeds."""

    task: str
    mechanism: str
    metric: str
    better: Literal["higher", "lower"]
    runs: tuple[Trained, ...]

    @property
    def mean(self) -> float:
        return fmean(run.value for run in self.runs)

    @property
    def spread(self) -> float | None:
        """Half of Student's interval at 95 % for the mean over seeds; None where one seed leaves it unknown."""
        values = [run.value for run in self.runs]
        if len(values) < 2:
            return None
        return student(len(values) - 1) * stdev(values) / math.sqrt(len(values))

    @property
    def parameters(self) -> float:
        return median(run.parameters for run in self.runs)


@dataclass(frozen=True, kw_only=True)
class Decision:
    """The fastest mechanism among those about as good as the best, on one task, for one pass at one length."""

    task: str
    kind: Pass
    length: int
    choice: str
    quality: Quality
    best: Quality
    margin: float
    timed: Timed
    level: tuple[str, ...]  # as good and, within the spread of the timings, as fast
    untimed: tuple[str, ...]  # as good, but without a timing here


class LedgerSummary:
    """`mechanisms` (labels, in catalogue order), `tasks`, `quality`, `timed`, `not_run`, and `notes` in plain words.

    unit: whose timings count; blocks by default, or bare layers where no block was timed. present: mixer -> the source that
    it has now, where that is known; elsewhere the newest counts. old: mixer -> how many of its results are left out as old.
    """

    def __init__(
        self,
        rows: Iterable[Result],
        unit: Unit | None = None,
        present: Mapping[str, str] | None = None,
    ):
        self.rows = list(rows)
        self.notes: list[str] = []
        kept, left_out = of_one_source(self.rows, present)
        old = [row for row in left_out if isinstance(row, Trained | Timed)]
        self.old = dict(Counter(row.mixer for row in old))
        newest = current(kept)
        self._note_sources([row for row in newest if isinstance(row, Trained | Timed)], old)
        self.not_run = sorted(
            [row for row in newest if isinstance(row, NotRun)],
            key=lambda row: (_place(row.mixer), str(row.subject)),
        )
        self.checked = sorted(
            [row for row in newest if isinstance(row, LawsChecked)],
            key=lambda row: _place(row.mixer),
        )
        trained = self._comparable_training([row for row in newest if isinstance(row, Trained)])
        timed = self._comparable_timing([row for row in newest if isinstance(row, Timed)])
        self.name = name = _labels(trained, timed)
        labelled = {name(row): row.mixer for row in trained} | {
            name(row): row.mixer for row in timed
        }
        self.mechanisms = sorted(labelled, key=lambda label: (_place(labelled[label]), label))
        self.family = {label: _family(labelled[label]) for label in self.mechanisms}
        self.tasks = sorted({row.task for row in trained})
        self.quality = self._qualities(trained, name)
        every = _newest(timed, lambda row: (row.unit, name(row), row.kind, row.length, row.causal))
        self.units = [one for one in UNITS if any(key[0] == one for key in every)]
        self.unit: Unit = unit or (self.units[0] if self.units else "block")
        self.timed: dict[tuple[str, Pass, int, bool], Timed] = {
            key[1:]: row for key, row in every.items() if key[0] == self.unit
        }
        self._mixer = labelled
        unchecked = {row.mixer for row in self.timed.values()} - {row.mixer for row in self.checked}
        if unchecked:
            self.notes.append(f"Laws not run yet: {_few(sorted(unchecked, key=_place))}.")
        if unequal := self._unequal():
            self.notes.append(
                f"Not of softmax's size, since weights for each position are its own: {unequal}."
            )
        self._label = {id(row): name(row) for row in self.not_run}
        self._label |= {id(row): label for (_, label, *_), row in every.items()}
        self._label |= {id(run): q.mechanism for q in self.quality.values() for run in q.runs}

    def _note_sources(self, newest: list[Trained | Timed], old: list[Trained | Timed]) -> None:
        now = engine(newest[0].provenance) if newest else None
        reasons: dict[str, Counter[str]] = {}
        for row in old:
            versions = engine(row.provenance)
            if row.source is None:
                why = "their source was not recorded"
            elif now in (None, versions):
                why = "the source has changed since"
            else:
                why = "they are of regard {} with torch {}".format(*versions)
            reasons.setdefault(why, Counter())[row.mixer] += 1
        for why, found in reasons.items():
            told = [f"{found[mixer]} of {mixer}" for mixer in sorted(found, key=_place)]
            self.notes.append(f"Old results left out, because {why}: {_few(told, 12)}.")
        if unknown := {row.mixer for row in newest if row.source is None}:
            self.notes.append(
                "Of unknown source, because an earlier version did not record it, so that results before and after an edit may be "
                f"mixed: {_few(sorted(unknown, key=_place), 12)}."
            )

    def _comparable_training(self, rows: list[Trained]) -> list[Trained]:
        kept = []
        for task in sorted({row.task for row in rows}):
            of_task = [row for row in rows if row.task == task]
            same_data, other = _majority(
                of_task, lambda row: (row.data_sha256, row.metric, row.task_source)
            )
            if other:
                self.notes.append(
                    f"{task}: {_count(other, 'run')} on other data, another metric or another source of the task left out."
                )
            for row in same_data:
                if math.isfinite(row.value):
                    kept.append(row)
                else:
                    self.notes.append(
                        f"{row.mixer} on {task}, seed {row.seed}: {row.metric} is {row.value}; left out."
                    )
        return kept

    def _comparable_timing(self, rows: list[Timed]) -> list[Timed]:
        def setting(row: Timed) -> tuple[object, ...]:
            where = row.provenance
            return where.device, where.threads, where.dtype, row.dim, row.num_heads

        kept, other = _majority(rows, setting)
        for (device, threads, dtype, dim, num_heads), number in Counter(
            map(setting, other)
        ).items():
            self.notes.append(
                f"{number} timings left out because they were taken elsewhere or at another size: "
                f"{device}, {threads} threads, {dtype}, dim {dim}, {num_heads} heads."
            )
        return kept

    def _unequal(self) -> str:
        """Blocks timed with more or fewer parameters than softmax's, and from which length on."""
        first: dict[str, int] = {}
        for (label, _, length, _), row in sorted(self.timed.items()):
            if not row.is_equal:
                first[label] = min(length, first.get(label, length))
        return _few([f"{label} from {length:,} tokens" for label, length in first.items()], 12)

    def _qualities(self, rows: list[Trained], name) -> dict[tuple[str, str], Quality]:
        newest = _newest(rows, lambda row: (row.task, name(row), row.seed, row.rate or 0.0))
        every = defaultdict(list)
        for (task, label, *_), row in sorted(newest.items(), key=lambda item: item[0]):
            every[task, label].append(row)
        runs = {pair: tuned(of_pair) for pair, of_pair in every.items()}
        for task in self.tasks:
            tokens = [
                row.tokens for (t, _), of_pair in runs.items() if t == task for row in of_pair
            ]
            if min(tokens) < 0.9 * max(tokens):
                low, high = min(tokens), max(tokens)
                self.notes.append(
                    f"{task}: training budgets differ, {low:,} to {high:,} tokens (early stopping counts)."
                )
        return {
            (task, label): Quality(
                task=task, mechanism=label, metric=of[0].metric, better=of[0].better, runs=tuple(of)
            )
            for (task, label), of in runs.items()
        }

    @property
    def missing(self) -> list[str]:
        """Results that a choice would need and the ledger lacks, as sentences."""
        if not self.rows:
            return ["The ledger is empty. Fill it with: regard arena quick"]
        found = []
        if not self.tasks:
            found.append("No training result yet, so nothing is known about quality.")
        if not self.timed:
            found.append("No timing yet, so nothing is known about speed and memory.")
        refused = {(row.mixer, row.subject) for row in self.not_run}
        measured = {(label, kind) for label, kind, _, _ in self.timed}
        for label in self.mechanisms:
            mixer = self._mixer[label]
            tasks = [
                t
                for t in self.tasks
                if (t, label) not in self.quality and (mixer, t) not in refused
            ]
            passes = [
                k for k in self.passes if (label, k) not in measured and (mixer, k) not in refused
            ]
            if tasks:
                found.append(f"{label} has no result yet on {', '.join(tasks)}.")
            if passes:
                found.append(f"{label} has no timing yet for {', '.join(passes)}.")
        if self.timed and not any(self._mixer[label] == BASELINE for label, *_ in self.timed):
            found.append(
                "softmax itself was not timed; ratios are to the softmax run beside each measurement."
            )
        return found

    @property
    def passes(self) -> list[Pass]:
        present = {kind for _, kind, _, _ in self.timed}
        return [kind for kind in PASSES if kind in present]

    @property
    def seeds(self) -> list[int]:
        return sorted({run.seed for quality in self.quality.values() for run in quality.runs})

    @property
    def seeds_per_pair(self) -> int:
        """The smallest number of seeds behind a quality; 0 where there is none."""
        return min((len(quality.runs) for quality in self.quality.values()), default=0)

    def lengths(self, kind: Pass) -> list[int]:
        return sorted({length for _, k, length, _ in self.timed if k == kind})

    def usual_length(self, kind: Pass) -> int | None:
        """The length at which a pass is shown first.

        The shortest at which quality was trained too, of those that most mechanisms were timed at; or else the longest.
        """
        at = defaultdict(set)
        for label, k, length, _ in self.timed:
            if k == kind:
                at[length].add(label)
        if not at:
            return None
        most = max(map(len, at.values()))
        common = sorted(length for length, labels in at.items() if len(labels) == most)
        trained = max(
            (run.length or 0 for quality in self.quality.values() for run in quality.runs),
            default=0,
        )
        return next((n for n in common if trained and n >= trained), common[-1])

    def timing(
        self, label: str, kind: Pass, length: int | None, causal: bool | None = None
    ) -> Timed | None:
        """The timing with this causality; where the mechanism has the other alone, that (its ratio is to the same)."""
        if length is None:
            return None
        causal = self.usual_causality(kind) if causal is None else causal
        return self.timed.get((label, kind, length, causal)) or self.timed.get(
            (label, kind, length, not causal)
        )

    def usual_causality(self, kind: Pass) -> bool:
        counts = Counter(causal for _, k, _, causal in self.timed if k == kind)
        return counts[True] >= counts[False]

    def is_language(self, task: str) -> bool:
        return any(is_causal(q.runs[0]) for (t, _), q in self.quality.items() if t == task)

    def qualities(self, task: str) -> list[Quality]:
        """Best first."""
        of_task = [quality for (t, _), quality in self.quality.items() if t == task]
        return sorted(of_task, key=lambda q: -q.mean if q.better == "higher" else q.mean)

    def tasks_for(self, kind: Pass) -> list[str]:
        """The tasks of a pass: decoding token by token concerns language models alone."""
        return [task for task in self.tasks if kind != "decode" or self.is_language(task)]

    def as_good(self, task: str) -> list[Quality]:
        """The best, and those within 2 % of it or within the seeds' interval (of either side), best first."""
        ranked = self.qualities(task)
        if not ranked:
            return []
        best = ranked[0]
        margin = TOLERANCE * abs(best.mean)
        return [
            quality
            for quality in ranked
            if abs(quality.mean - best.mean) <= max(margin, best.spread or 0, quality.spread or 0)
        ]

    def decide(self, task: str, kind: Pass, length: int) -> Decision | None:
        """The fastest within `margin` of the best; softmax where nothing as good is measurably faster.

        margin: 2 % of the best quality, or the seeds' interval (of either side) where that is larger.
        """
        good = self.as_good(task)
        if not good:
            return None
        best = good[0]
        margin = TOLERANCE * abs(best.mean)
        causal = self.is_language(task)
        timed = {
            q.mechanism: t for q in good if (t := self.timing(q.mechanism, kind, length, causal))
        }
        if not timed:
            return None
        choice = min(timed, key=lambda label: timed[label].ratio)
        softmax = next((label for label in timed if self._mixer[label] == BASELINE), None)
        if softmax and not measurably_faster(timed[choice]):
            choice = softmax
        fastest = timed[choice].ratio
        level = [
            label
            for label, t in timed.items()
            if label != choice and abs(t.ratio / fastest - 1) < LEVEL
        ]
        return Decision(
            task=task,
            kind=kind,
            length=length,
            choice=choice,
            quality=self.quality[task, choice],
            best=best,
            margin=margin,
            timed=timed[choice],
            level=tuple(level),
            untimed=tuple(q.mechanism for q in good if q.mechanism not in timed),
        )

    def overtaking(self, label: str, kind: Pass) -> Crossing | None:
        """From which length on it is faster than softmax, between the quartiles of its times."""
        rows = [row for n in self.lengths(kind) if (row := self.timing(label, kind, n))]
        low, median, high = (
            [(row.length, getattr(row, name) / row.baseline_ms) for row in rows]
            for name in ("low_ms", "median_ms", "high_ms")
        )
        return crossing(median, (low, high))

    def memory_ratios(self, label: str, kind: Pass) -> list[tuple[int, float]]:
        softmax = next((other for other in self.mechanisms if self._mixer[other] == BASELINE), None)
        pairs = []
        for n in self.lengths(kind):
            row = self.timing(label, kind, n)
            base = self.timed.get((softmax, kind, n, row.causal)) if softmax and row else None
            if row and base and row.peak_bytes > 0 and base.peak_bytes > 0:
                pairs.append((n, row.peak_bytes / base.peak_bytes))
        return pairs

    def is_baseline(self, label: str) -> bool:
        return self._mixer.get(label) == BASELINE

    def label(self, row: Result) -> str | None:
        """The mechanism's label of a row that counts here; None for one that is left out."""
        return self._label.get(id(row))

    @property
    def labels(self) -> dict[str, str]:
        """Label -> family, in catalogue order: what was measured, and what could not be."""
        mixers = {self._label[id(row)]: row.mixer for row in self.not_run} | self._mixer
        order = sorted(mixers, key=lambda label: (_place(mixers[label]), label))
        return {label: _family(mixers[label]) for label in order}


def is_causal(run: Trained) -> bool:
    """By its metric, where an earlier version's row does not say."""
    return run.metric in LANGUAGE_METRICS if run.causal is None else run.causal


@cache
def student(freedom: int) -> float:
    """Student's t at 97.5 %, for intervals at 95 %; more than MOST_FREEDOM degrees of freedom count as so many."""
    from scipy.stats import t

    return float(t.ppf(0.975, min(freedom, MOST_FREEDOM)))


def measurably_faster(row: Timed) -> bool:
    """More than 5 % faster than softmax, and its slower quartile still faster."""
    return row.ratio < 1 - LEVEL and row.high_ms < row.baseline_ms


def _place(mixer: str) -> tuple[int, str]:
    names = MIXERS.names()
    return (names.index(mixer), mixer) if mixer in names else (len(names), mixer)


def _family(mixer: str) -> str:
    return MIXERS[mixer].family if mixer in MIXERS else "other"


def _labels(trained: list[Trained], timed: list[Timed]) -> Callable[[Result], str]:
    """A function row -> label: the mixer, with the options that differ where it was run with several."""
    rows: list[Trained | Timed] = [*trained, *timed]
    sets: dict[str, set[str]] = defaultdict(set)
    values: dict[tuple[str, str], set[str]] = defaultdict(set)
    for row in rows:
        sets[row.mixer].add(_frozen(row.options))
        for option, value in row.options.items():
            values[row.mixer, option].add(_frozen(value))
    several = {mixer for mixer, found in sets.items() if len(found) > 1}
    counts = Counter(row.mixer for row in rows)
    given = Counter((row.mixer, option) for row in rows for option in row.options)

    def differs(mixer: str, option: str) -> bool:
        return len(values[mixer, option]) > 1 or given[mixer, option] < counts[mixer]

    def name(row: Result) -> str:
        shown = [f"{k}={v}" for k, v in sorted(row.options.items()) if differs(row.mixer, k)]
        return f"{row.mixer} ({', '.join(shown)})" if shown and row.mixer in several else row.mixer

    return name


def _frozen(value: object) -> str:
    return json.dumps(value, sort_keys=True, default=str)


def _newest(rows: Iterable[Measured], key: Callable[[Measured], Any]) -> dict[Any, Measured]:
    found: dict[Any, Measured] = {}
    for row in rows:
        held = found.get(key(row))
        if held is None or row.provenance.started >= held.provenance.started:
            found[key(row)] = row
    return found


def _majority(
    rows: list[Measured], key: Callable[[Measured], Hashable]
) -> tuple[list[Measured], list[Measured]]:
    """Rows of the most frequent key (the newest among equals), and the others."""
    if not rows:
        return [], []
    counts = Counter(map(key, rows))
    started: dict[Hashable, str] = defaultdict(str)
    for row in rows:
        started[key(row)] = max(started[key(row)], row.provenance.started)
    main = max(counts, key=lambda k: (counts[k], started[k]))
    return [row for row in rows if key(row) == main], [row for row in rows if key(row) != main]


def _few(names: Sequence[str], most: int = 6) -> str:
    left = len(names) - most
    return ", ".join(names[:most]) + (f" and {left} more" if left > 0 else "")


def _count(rows: list, noun: str) -> str:
    return f"{len(rows)} {noun}{'' if len(rows) == 1 else 's'}"
