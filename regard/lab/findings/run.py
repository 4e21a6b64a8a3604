"""Running a finding: each entry from each seed, into the ledger; several processes share the work, and a kill loses none."""

import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, is_dataclass, replace
from functools import partial
from pathlib import Path
from types import FunctionType
from typing import Any

import torch
from rich.console import Console

from regard.core import OptionError, RegardError
from regard.core.errors import visible
from regard.lab.arena.claims import Claims, Job, share
from regard.lab.arena.ledger import Ledger, trial_key
from regard.lab.arena.provenance import describe, provenance, versions
from regard.lab.arena.results import Tried
from regard.lab.arena.source import LIBRARY, label, source
from regard.lab.data.checks import check_seed
from regard.lab.data.files import check_writable
from regard.lab.findings.finding import Entry, Finding, Fitted
from regard.lab.recipes.run import Run, as_json, train
from regard.lab.tasks import Splits


@dataclass(kw_only=True)
class Tally:
    """The outcome of running a finding; `rows` are all its rows, new and found."""

    finding: str
    new: int = 0
    found: int = 0
    left: int = 0  # not begun, for want of time
    seconds: float = 0.0
    rows: list[Tried] = field(default_factory=list)


def run_finding(
    finding: Finding,
    ledger: Ledger,
    run_dir: str | Path,
    *,
    seeds: tuple[int, ...] = (),
    tokens: int | None = None,
    hours: float | None = None,
    command: str | None = None,
    progress: bool = True,
) -> Tally:
    """Do what is missing in the ledger, each entry from all its seeds before the next, so that what is done has intervals.

    Killed at any point, the next call goes on where this one was; several processes share the work. `seeds` and `tokens`
    (of training) replace the finding's own; after so many `hours` nothing new is begun. An entry that is refused, or
    diverges, becomes a row with the reason. Raises OptionError, and PathError if the folder cannot be written.
    """
    check_writable(Path(run_dir), folder=True)
    if hours is not None and not hours > 0:
        raise OptionError(f"hours ({hours}) must be positive")
    if tokens is not None and tokens < 1:
        raise OptionError(f"tokens ({tokens}) must be at least 1")
    for seed in seeds:
        check_seed("finding", seed)
    chosen = replace(finding, seeds=seeds or finding.seeds)
    end = math.inf if hours is None else time.monotonic() + 3600 * hours
    return _FindingRun(chosen, ledger, Path(run_dir), tokens, end, command, progress).all()


def best_rates(rows: Iterable[Tried]) -> dict[str, float | None]:
    """Entry -> the learning rate that was best on validation, from the seed with most rates."""
    found: dict[str, dict[int, list[Tried]]] = {}
    for row in rows:
        if row.valid_value is not None:
            found.setdefault(row.entry, {}).setdefault(row.seed, []).append(row)
    best = {}
    for entry, by_seed in found.items():
        tried = max(by_seed.values(), key=len)
        sign = 1 if tried[0].better == "higher" else -1
        best[entry] = max(tried, key=lambda row: sign * (row.valid_value or 0.0)).rate
    return best


class _FindingRun:
    def __init__(
        self,
        finding: Finding,
        ledger: Ledger,
        run_dir: Path,
        tokens: int | None,
        end: float,
        command: str | None,
        progress: bool,
    ):
        self.finding, self.ledger, self.run_dir = finding, ledger, run_dir
        self.tokens, self.end, self.command = tokens, end, command
        self.console = Console(stderr=True, quiet=not progress)
        self.device = "cuda" if torch.cuda.is_available() else "cpu"
        self.claims = Claims(ledger.path)
        self.tally = Tally(finding=finding.name)
        self._splits: dict[str, Splits] = {}

    def all(self) -> Tally:
        began = time.perf_counter()
        seeds, best = self.finding.seeds, dict[str, float | None]()
        if self.finding.rates:
            self._share(
                self._job(entry, seeds[0], rate)
                for entry in self.finding.entries
                if entry.run
                for rate in self.finding.rates
            )
            best = best_rates(self.tally.rows)
        self._share(
            self._job(entry, seed, best.get(entry.name))
            for entry in self.finding.entries
            for seed in seeds
            if seed != seeds[0] or entry.name not in best
        )
        self.tally.seconds = time.perf_counter() - began
        return self.tally

    def _share(self, jobs: Iterable[Job | None]) -> None:
        able = [job for job in jobs if job is not None]
        late = lambda: time.monotonic() > self.end  # noqa: E731
        self.tally.left += share(able, self.claims, self._doing, late)

    def _job(self, entry: Entry, seed: int, rate: float | None) -> Job | None:
        """None where the entry is refused, which is noted at once."""
        if entry.run is None:
            content: dict[str, Any] = {"machine": describe(self.device)} | _sources(entry.values)
            return self._job_of(entry, seed, content, lambda key: self._valued(entry, seed))
        try:
            run = self._run(entry, seed, rate)
            content = self._content(run)
            first = None if entry.before is None else self._first(entry.before(), seed)
            if first is not None:
                content["before"] = self._content(first)
        except RegardError as error:
            self._refused(entry, seed, str(error))
            return None
        return self._job_of(entry, seed, content, lambda key: self._trained(entry, run, key, first))

    def _job_of(
        self, entry: Entry, seed: int, content: dict[str, Any], make: Callable[[str], Tried]
    ) -> Job:
        about = versions()
        key = trial_key(
            {"kind": "tried", "finding": self.finding.name, "entry": entry.name, "seed": seed}
            | content
            | {"torch": about["torch"], "regard": about["regard"]}
        )

        def found() -> bool:
            row = self.ledger.tried(key)
            if row is not None:
                self.tally.found += 1
                self.tally.rows.append(row)
            return row is not None

        def do() -> None:
            row = make(key)
            self.ledger.put(key, row)
            self.tally.new += 1
            self.tally.rows.append(row)
            self._say(row)

        what = f"{entry.name}  seed {seed}"
        return Job(key=key, what=what, found=found, do=do, alone=entry.run is None)

    def _content(self, run: Run) -> dict[str, Any]:
        return self._config(run) | {"data": self._data(run).sha256}

    def _first(self, run: Run, seed: int) -> Run:
        return replace(run, seed=seed, train=replace(run.train, seed=seed))

    def _run(self, entry: Entry, seed: int, rate: float | None) -> Run:
        assert entry.run is not None
        run = entry.run()
        changes: dict[str, Any] = {"seed": seed}
        if rate is not None:
            changes["lr"] = rate
        if self.tokens is not None:
            changes |= {"tokens": self.tokens, "steps": None}
        return replace(run, seed=seed, train=replace(run.train, **changes))

    def _config(self, run: Run) -> dict[str, Any]:
        own = _sources(run.model, type(run.task), self.finding.measures)
        plain = {"task": _options(run), "model": as_json(run.model), "train": asdict(run.train)}
        return plain | own

    def _data(self, run: Run) -> Splits:
        key = repr(run.task)
        if key not in self._splits:
            self._splits[key] = run.task.load()
        return self._splits[key]

    def _trained(self, entry: Entry, run: Run, key: str, first: Run | None) -> Tried:
        splits, origin = self._data(run), self._provenance(run)
        config = self._config(run) | ({"before": self._config(first)} if first else {})
        base = self._row(entry, run.seed, config, origin)
        base |= {"rate": run.train.lr, "task": run.task.name, "data_sha256": splits.sha256}
        base |= {"metric": run.task.metric, "better": run.task.better}
        try:
            if first is not None:
                begun = self.run_dir / trial_key(self._content(first))[:16]
                train(first, begun, splits=self._data(first), wait=True, progress=False)
                run = replace(run, start_from=begun)
            model, result = train(
                run, self.run_dir / key[:16], splits=splits, wait=True, progress=False
            )
        except RegardError as error:  # it diverged, or was refused at its size
            return Tried(**base | {"reason": str(error)})
        measures = self.finding.measures
        more = measures(Fitted(run, model, splits, result)) if measures else {}
        return Tried(
            **base
            | {
                "value": result.value,
                "valid_value": result.valid_value,
                "values": {name: float(value) for name, value in more.items()},
                "parameters": sum(p.numel() for p in model.parameters() if p.requires_grad),
                "steps": result.steps,
                "tokens": result.tokens,
                "seconds": result.seconds,
                "curve": result.curve,
            }
        )

    def _valued(self, entry: Entry, seed: int) -> Tried:
        assert entry.values is not None
        config = _sources(entry.values)
        began, base = time.perf_counter(), self._row(entry, seed, config, self._provenance())
        try:
            values = {name: float(value) for name, value in entry.values(seed).items()}
        except RegardError as error:
            return Tried(**base | {"reason": str(error)})
        return Tried(**base | {"values": values, "seconds": time.perf_counter() - began})

    def _refused(self, entry: Entry, seed: int, reason: str) -> None:
        row = Tried(**self._row(entry, seed, {}, self._provenance()) | {"reason": reason})
        key = trial_key(
            {"kind": "refused", "finding": row.finding, "entry": row.entry, "seed": seed}
            | {"reason": reason}
        )
        self.ledger.put(key, row)
        self.tally.rows.append(row)
        self._say(row)

    def _row(self, entry: Entry, seed: int, config: dict[str, Any], origin: Any) -> dict[str, Any]:
        """The fields of a row without results."""
        return {
            "finding": self.finding.name,
            "entry": entry.name,
            "seed": seed,
            "rate": None,
            "task": "",
            "metric": "",
            "better": "higher",
            "value": None,
            "valid_value": None,
            "values": {},
            "parameters": 0,
            "steps": 0,
            "tokens": 0,
            "seconds": 0.0,
            "data_sha256": "",
            "config": config,
            "provenance": origin,
        }

    def _provenance(self, run: Run | None = None) -> Any:
        bf16 = run is not None and run.train.precision == "bf16"
        dtype = "bfloat16" if bf16 else "float32"
        return provenance(device=self.device, dtype=dtype, command=self.command)

    @contextmanager
    def _doing(self, what: str) -> Iterator[None]:
        with self.console.status(visible(f"{self.finding.name}: {what}")):
            yield

    def _say(self, row: Tried) -> None:
        told = f"not run: {row.reason}" if row.reason else _told(row)
        line = f"{row.entry}, seed {row.seed}: {told} ({row.seconds:.0f} s)"
        self.console.print(visible(line), highlight=False, markup=False, soft_wrap=True)


def _told(row: Tried) -> str:
    measured = {} if row.value is None else {f"{row.metric} at lr {row.rate:g}": row.value}
    return ", ".join(f"{name} {value:.4g}" for name, value in (measured | row.values).items())


def _sources(*parts: Any) -> dict[str, Any]:
    """{"sources": label -> source} of the classes and functions of one's own in these; empty without any."""
    found: dict[str, str] = {}

    def look(value: Any) -> None:
        if is_dataclass(value) and not isinstance(value, type):
            value = vars(value)
        if isinstance(value, Mapping):
            value = tuple(value.values())
        if isinstance(value, list | tuple):
            for one in value:
                look(one)
        elif isinstance(value, partial):
            look((value.func, value.args, value.keywords))
        elif isinstance(value, type | FunctionType) and source(value) != LIBRARY:
            found[label(value)] = source(value)

    look(parts)
    return {"sources": found} if found else {}


def _options(run: Run) -> dict[str, Any]:
    """Without paths: the same data count as the same wherever they are, by their checksum."""
    found = asdict(run.task)
    plain = {name: value for name, value in found.items() if not isinstance(value, Path)}
    return {"name": run.task.name} | plain
