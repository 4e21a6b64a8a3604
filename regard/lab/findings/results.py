"""A finding's rows, by entry, measure and seed, and the verdicts that follow from them."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from regard.lab.arena.ledger import canonical
from regard.lab.arena.results import Tried
from regard.lab.findings.finding import Claim, Finding
from regard.lab.findings.intervals import (
    Interval,
    Verdict,
    bounds,
    difference,
    together,
    verdict,
)
from regard.lab.findings.run import best_rates


@dataclass(frozen=True)
class Judged:
    """A claim, the interval of each of its parts, and what follows."""

    claim: Claim
    intervals: tuple[Interval | None, ...]
    verdicts: tuple[Verdict, ...]

    @property
    def verdict(self) -> Verdict:
        return together(self.verdicts)


class Results:
    """A finding's rows by entry, measure and seed: of each entry's newest configuration, at its best learning rate."""

    def __init__(self, finding: Finding, rows: Iterable[Tried]):
        self.finding = finding
        newest = _newest(row for row in rows if row.finding == finding.name)
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
        found, verdicts = [], []
        for expected in claim.expected:
            of = self.by_seed(expected.of, expected.measure)
            name = expected.beside
            beside = None if name is None else self.by_seed(name, expected.measure)
            one = difference(expected, of, beside)
            found.append(one)
            verdicts.append(verdict(one, *bounds(expected)))
        return Judged(claim, tuple(found), tuple(verdicts))


def _newest(rows: Iterable[Tried]) -> list[Tried]:
    """Rows of each entry's latest configuration, seed and learning rate apart; the last of each seed and rate."""
    every = list(rows)
    latest = {row.entry: _setting(row) for row in every}
    found = {
        (row.entry, row.seed, row.rate): row for row in every if _setting(row) == latest[row.entry]
    }
    return list(found.values())


def _setting(row: Tried) -> str:
    config = json.loads(canonical(row.config))
    train = {k: v for k, v in config.get("train", {}).items() if k not in ("lr", "seed")}
    return json.dumps(config | {"train": train}, sort_keys=True)
