"""A finding's rows, by entry, measure and seed, and the verdicts that follow from them.

A verdict is withheld ("cannot tell") in three cases, each with its reason on the page; the third is of verdicts that say
something is absent, a claimed difference or a level, which more training may yet bring:

    a condition of the claim (`Claim.when`) was not reached
    no model compared is better than its task's trivial baseline, whatever was measured of it
    with what each entry gained in the second half of its training, once more, the verdict would be another
"""

import json
import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import chain

from regard.lab.arena.ledger import canonical
from regard.lab.arena.results import Tried, engine
from regard.lab.findings.finding import Claim, Expected, Finding
from regard.lab.findings.intervals import (
    Interval,
    Verdict,
    bounds,
    difference,
    interval,
    number,
    together,
    verdict,
)
from regard.lab.findings.run import best_rates


@dataclass(frozen=True)
class Part:
    """One bound of a claim, the interval that it bounds, and what follows; `reason` says why a verdict was withheld."""

    expected: Expected
    interval: Interval | None
    verdict: Verdict
    reason: str | None = None


@dataclass(frozen=True)
class Judged:
    claim: Claim
    parts: tuple[Part, ...]

    @property
    def verdict(self) -> Verdict:
        if self.claim.withdrawn:
            return "withdrawn"
        return together([part.verdict for part in self.parts])


class Results:
    """A finding's rows by entry, measure and seed: of each entry's newest configuration, at its best learning rate.

    baselines: entry -> the trivial baseline of its task, where it is known. old: entry -> how many of its rows are left out,
    those of an older source, configuration or version among `rows` and those left out before.
    """

    def __init__(
        self,
        finding: Finding,
        rows: Iterable[Tried],
        baselines: Mapping[str, float] | None = None,
        old: Mapping[str, int] | None = None,
    ):
        self.finding, self.baselines = finding, baselines or {}
        of_finding = [row for row in rows if row.finding == finding.name]
        newest, left_out = _newest(of_finding)
        self.old = dict(Counter(row.entry for row in left_out) + Counter(old))
        rates = best_rates(newest)
        self.rows = {
            entry.name: [
                row
                for row in newest
                if row.entry == entry.name and (row.rate == rates.get(entry.name) or row.reason)
            ]
            for entry in finding.entries
        }
        self.tried = newest

    def by_seed(self, entry: str, measure: str | None) -> dict[int, float]:
        """The measure, or the task's metric, of each seed that has it."""
        found = {}
        for row in self.rows[entry]:
            of_task = measure is None or measure == row.metric
            value = row.value if of_task else row.values.get(measure or "")
            if value is not None:
                found[row.seed] = value
        return found

    def measures(self, part: str) -> list[str]:
        """Those that the entries of this part have, the task's metric first."""
        found: dict[str, None] = {}
        for entry in self.finding.entries:
            if entry.part == part:
                rows = self.rows[entry.name]
                found |= dict.fromkeys(row.metric for row in rows if row.value is not None)
                found |= dict.fromkeys(name for row in rows for name in row.values)
        shown = self.finding.shown
        return [name for name in found if not shown or name in shown or name == self.finding.x]

    def judged(self) -> list[Judged]:
        return [self._judged(claim) for claim in self.finding.claims]

    def _judged(self, claim: Claim) -> Judged:
        missing = next((one for one in claim.when if self._difference(one) is None), None)
        unmet = next(filter(None, map(self._unmet, claim.when)), None) if missing is None else None
        parts = (self._part(expected, missing, unmet) for expected in claim.expected)
        return Judged(claim, tuple(parts))

    def _part(self, expected: Expected, missing: Expected | None, unmet: str | None) -> Part:
        found = self._difference(expected)
        word = verdict(found, *bounds(expected))
        if found is None or word not in ("agrees", "disagrees"):
            return Part(expected, found, word)
        if missing is not None:
            names = " and ".join(f"`{name}`" for name in (missing.of, missing.beside) if name)
            return Part(expected, found, "not run", f"its condition is of {names}")
        reason = unmet or self._unlearned(expected)
        if reason is None and self._absent(expected, word):
            reason = self._unsettled(expected, found, word)
        return Part(expected, found, "cannot tell" if reason else word, reason)

    def _difference(self, expected: Expected) -> Interval | None:
        of = self.by_seed(expected.of, expected.measure)
        name = expected.beside
        return difference(expected, of, self.by_seed(name, expected.measure) if name else None)

    def _unmet(self, condition: Expected) -> str | None:
        found = self._difference(condition)
        if found is None or verdict(found, *bounds(condition)) == "agrees":
            return None
        shown = math.exp if condition.ratio else float
        told = number(shown(found.mean))
        if math.isfinite(found.half):
            told += f" ({number(shown(found.low))} to {number(shown(found.high))})"
        beside = f" less `{condition.beside}`" if condition.beside else ""
        least, most = condition.least, condition.most
        needs = f"above {number(least)}" if math.isfinite(least) else f"below {number(most)}"
        joint = f"`{condition.of}`{beside}"
        return f"the claim needs {joint} {needs}, and here it is {told}"

    def _absent(self, expected: Expected, word: Verdict) -> bool:
        """Does the verdict rest on something that was not seen: a difference, or a level that is better?"""
        if word == "disagrees":
            return True
        if expected.beside is not None:
            least, most = bounds(expected)
            return least < 0 < most
        worse = expected.most if self._sign(expected.of) > 0 else expected.least
        return self._of_task(expected) and math.isfinite(worse)

    def _unlearned(self, expected: Expected) -> str | None:
        both = (expected.of, expected.beside)
        names = [name for name in both if name and name in self.baselines]
        if not names or any(map(self._learned, names)):
            return None
        who = " and ".join(f"`{name}`" for name in names)
        verb = "are" if len(names) > 1 else "is"
        return (
            f"{who} {verb} no better than the trivial baseline, {number(self.baselines[names[0]])}"
        )

    def _learned(self, entry: str) -> bool:
        found = interval(list(self.by_seed(entry, None).values()))
        if found is None:
            return False
        sign, half = self._sign(entry), found.half if math.isfinite(found.half) else 0.0
        return sign * (found.mean - self.baselines[entry]) > half

    def _unsettled(self, expected: Expected, found: Interval, word: Verdict) -> str | None:
        """Would the verdict be another if each entry gained once more what it gained in the second half of its training?"""
        if expected.ratio or not self._of_task(expected):
            return None
        names = [name for name in (expected.of, expected.beside) if name]
        gains = [self._gained_late(name) for name in names]
        moved = self._sign(expected.of) * (gains[0] - sum(gains[1:]))
        if verdict(found._replace(mean=found.mean + moved), *bounds(expected)) == word:
            return None
        told = " and ".join(
            f"`{name}` gained {number(gain)}" for name, gain in zip(names, gains, strict=True)
        )
        return f"{told} in the second half of training: as much once more, and the verdict would be another"

    def _gained_late(self, entry: str) -> float:
        """Gain of the validation metric from the look nearest to half of the steps to the last; mean over seeds."""
        gains = []
        for row in self.rows[entry]:
            if len(row.curve) > 1:
                _, middle = min(row.curve[:-1], key=lambda look: abs(look[0] - row.steps / 2))
                gains.append(self._sign(entry) * (row.curve[-1][1] - middle))
        return max(0.0, statistics.fmean(gains)) if gains else 0.0

    def _sign(self, entry: str) -> int:
        """1 where more of the task's metric is better, -1 where less is."""
        return next((-1 for row in self.rows[entry] if row.better == "lower"), 1)

    def _of_task(self, expected: Expected) -> bool:
        metrics = {row.metric for row in self.rows[expected.of]}
        return expected.measure is None or expected.measure in metrics


def _newest(every: list[Tried]) -> tuple[list[Tried], list[Tried]]:
    """Rows of the latest versions and of each entry's latest configuration, seed and learning rate apart, the last of each
    seed and rate; and the rows of others.
    """
    by_time = sorted(every, key=lambda row: row.provenance.started)
    versions = engine(by_time[-1].provenance) if by_time else None
    latest = {row.entry: _setting(row) for row in by_time}
    sources = dict(chain.from_iterable(map(_sources, by_time)))

    def counts(row: Tried) -> bool:
        same = engine(row.provenance) == versions and _setting(row) == latest[row.entry]
        return same and all(sources[name] == found for name, found in _sources(row))

    found = {(row.entry, row.seed, row.rate): row for row in every if counts(row)}
    return list(found.values()), [row for row in every if not counts(row)]


def _sources(row: Tried) -> list[tuple[str, str]]:
    """Label and source of the classes and functions of one's own that the row is of."""
    runs = (row.config, row.config.get("before", {}))
    return [pair for run in runs for pair in run.get("sources", {}).items()]


def _setting(row: Tried) -> str:
    config = json.loads(canonical(row.config))
    for run in (config, config.get("before", {})):
        for name in ("lr", "seed"):
            run.get("train", {}).pop(name, None)
    return json.dumps(config, sort_keys=True)
