"""A mechanism for a length and its needs: capabilities first, then what a ledger holds, as a ranking with reasons.

Times and memory at a length that was not measured follow from growth that is fitted to the lengths that were. With an
empty ledger there are only capabilities and declared costs.
"""

import json
import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from regard.core import Above0, Declared, OptionError, UnknownNameError, growth
from regard.lab import Entry, Question, Setting
from regard.lab.experiment.ledger import Ledger
from regard.lab.experiment.lines import LINES
from regard.lab.experiment.provenance import describe, own_device
from regard.lab.experiment.results import MEASURED, Cell, Results, best_of, questions
from regard.lab.experiment.row import Row, as_json
from regard.lab.experiment.run import ask
from regard.lab.experiment.stored import Pass
from regard.lab.growth import Estimate, Growth
from regard.lab.questions import QUESTIONS
from regard.lab.report.terminal import size
from regard.mixers import MIXERS

ROUGH = 2048  # tokens at which `measure` ends
DIM = 256
HEADS = 4
LEVEL = 0.05  # a smaller difference in time is called none
TOLERANCE = 0.02  # of the best mean, within which another is as good
SOFTMAX = "softmax"


class Case(Declared):
    """The requirements on one block."""

    length: int  # tokens
    causal: bool = False
    cross: bool = False
    padding: bool = False
    decode: bool = False  # token by token, after `length` others
    train: bool = False  # by the time of a training step, rather than of a forward pass
    memory: Above0 | None = None  # bytes at most, beyond parameters and input, at the timed width
    task: str | None = None  # a trained column, by whose quality it is judged

    def __post_init__(self):
        if self.decode and (self.train or self.cross):
            raise OptionError("decode cannot be joined with train or cross: time them apart")

    @property
    def kind(self) -> Pass:
        return "decode" if self.decode else "train" if self.train else "forward"

    @property
    def needs(self) -> list[str]:
        """Names of the capabilities."""
        named = ["streaming"] * self.decode + ["causal"] * (self.causal or self.decode)
        named += ["cross"] * self.cross
        return (named or ["bidirectional"]) + ["padding"] * self.padding


class Quality(NamedTuple):
    """Mean over seeds in a trained column, None where every run failed; `Results.mark`, "reached" also where it is as good as the best."""

    mean: float | None
    mark: str


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A mechanism that can do what is wanted; None where the ledger does not say."""

    mechanism: str  # label of the entry
    cost: str  # declared, of time
    declared_memory: str
    ms: Estimate | None = None
    ratio: Estimate | None = None  # of time to softmax
    bytes: Estimate | None = None
    quality: dict[str, Quality]  # by trained column
    causal: bool | None = None  # as timed

    @property
    def reached(self) -> list[str]:
        return [name for name, found in self.quality.items() if found.mark == "reached"]

    @property
    def is_grey(self) -> bool:
        return {found.mark for found in self.quality.values()} == {"not reached"}


@dataclass(frozen=True)
class Recommendation:
    case: Case
    sentence: str
    choice: str | None
    ranked: list[Candidate]  # the fastest first, then those without a timing by declared growth
    excluded: dict[str, str]  # mechanism -> why
    notes: list[str]


def recommend(case: Case, rows: Iterable[Row] = (), own: Sequence[Entry] = ()) -> Recommendation:
    """Decides by these rows of a ledger. `own`: mixers that come beside the catalogue's.

    Raises UnknownNameError for a task that is no trained column.
    """
    known = _Known(case, rows, own)
    columns = sorted({name for found in known.quality.values() for name in found})
    if case.task is not None and case.task not in columns:
        more = (f"{case.task} (", f"{case.task}, ")  # and its file, or its place
        near = [name for name in columns if name.startswith(more)]
        if len(near) != 1:
            raise UnknownNameError("trained column", case.task, near or columns)
        case = replace(case, task=near[0])
    ranked, excluded = _able(case, known)
    choice, sentence = _choice(case, ranked)
    return Recommendation(case, sentence, choice, ranked, excluded, _notes(case, known, ranked))


def measure(case: Case, ledger: Ledger, own: Sequence[Entry] = (), *, seconds: float = 8.0, progress: bool = False) -> list[Row]:  # fmt: skip
    """Rough timings of everything that can do the case, beside fused softmax, kept in the ledger: about a minute.

    Four lengths up to the case's own, and to no more than 2,048, `seconds` for each; what this machine has timed already is not
    timed again. The laws are run on one's own mixers alone.
    """
    known = _Known(case, ledger.rows(), own)
    able, _ = _able(replace(case, memory=None), known)
    entries = tuple(known.entries[label] for label in sorted(found.mechanism for found in able))
    top = min(case.length, ROUGH)
    causal = None if case.decode else case.causal
    vary = tuple(
        Setting(kind=case.kind, length=length, dim=DIM, num_heads=HEADS, device=own_device(), causal=causal, unit="block", seconds=seconds)
        for length in sorted({max(top // part, 8) for part in (16, 4, 2, 1)})
    )  # fmt: skip
    about = f"rough timings up to {top:,} tokens"
    question = Question(name=MEASURED, about=about, entries=entries, vary=vary)
    return ask(question, ledger, ledger.path.parent, progress=progress)


class _Known:
    """The rows of a ledger, as far as they are of today's sources.

    entries: label -> what was measured, and the rest of the catalogue. timed: label -> timings by length, of one setting.
    quality: label -> column -> quality. broken, unread: label -> the law, and why not. old, elsewhere: what is left out.
    """

    def __init__(self, case: Case, rows: Iterable[Row], own: Sequence[Entry]):
        every = [*own, *(Entry(mixer=name) for name in MIXERS)]
        names = {entry.name: entry for entry in every}
        today = names | {line.name: line for line in LINES}
        rows = sorted(rows, key=lambda row: row.provenance.started)
        newest = {row.entry: row for row in rows}

        def is_old(row: Row) -> bool:
            if row.mixer not in today:  # a question, or a whole model
                return False
            last = newest[row.entry]
            source = today[row.mixer].source
            return (row.mixer, row.options, row.source) != (last.mixer, last.options, source)

        kept = [row for row in rows if not is_old(row)]
        self.old = Counter(row.entry for row in rows if row.kind != "laws" and is_old(row))
        mine = {row.entry: row for row in kept if row.kind in ("trained", "timed") and row.mixer in names}  # fmt: skip
        built = {entry.label: entry for one in QUESTIONS.values() for entry in one.entries}
        self.entries = {}
        self.unread = dict[str, str]()
        for label, row in mine.items():
            other = built.get(label)
            if other and as_json(other.options) == row.options:
                self.entries[label] = other
            elif ":" in json.dumps([*row.options.values()]):  # the name of a function, or fields
                self.unread[label] = (
                    "its options are functions or objects, of which rows hold no more than names"
                )
            else:
                self.entries[label] = replace(names[row.mixer], options=row.options, title=label)
        measured = {mine[label].mixer for label in self.entries}
        self.entries |= {one.label: one for one in every if one.name not in measured}
        self.broken = {row.entry: row.reason for row in kept if row.kind == "laws" and row.reason}
        self.timed, self.elsewhere = _timed(case, [row for row in kept if row.entry in mine])
        self.quality: dict[str, dict[str, Quality]] = {label: {} for label in self.entries}
        for results in questions(kept):
            for (label, column), cell in results.cells.items():
                if label in self.entries and (cell.rows or cell.failed):
                    self.quality[label].setdefault(column, _quality(results, cell))


def _timed(case: Case, rows: Sequence[Row]) -> tuple[dict[str, list[Row]], int]:
    """The timings of one setting, and how many others there are: of the newest engine, this machine and blocks, if there are any."""
    rows = [row for row in rows if row.kind == "timed" and row.setting["kind"] == case.kind]
    here = describe(own_device())

    def group(row: Row) -> tuple:
        setting = row.setting
        where = row.provenance
        shape = (setting["batch"], setting["dim"], setting["num_heads"])
        best = (row.engine == rows[-1].engine, where.device == here, setting["unit"] == "block")
        return best, where.machine, where.dtype, shape

    groups = Counter(map(group, rows))
    best = max(groups, key=lambda one: (one[0], groups[one]), default=None)
    chosen = [row for row in rows if group(row) == best]
    wanted = case.causal or case.decode
    exact = {row.entry for row in chosen if row.causal == wanted}
    found = dict[str, dict[int, Row]]()
    for row in chosen:
        if row.causal == wanted or row.entry not in exact:
            found.setdefault(row.entry, {})[row.setting["length"]] = row
    timed = {label: [of[n] for n in sorted(of)] for label, of in found.items()}
    return timed, len(rows) - len(chosen)


def _quality(results: Results, cell: Cell) -> Quality:
    mark = results.mark(cell)
    if cell.mean is None:
        return Quality(None, "not reached")
    if cell.column not in results.accuracies and mark == "in part":
        column = results.in_column(cell.column)
        best = best_of(cell.better)(one.mean for one in column if one.mean is not None)
        mark = "reached" if abs(cell.mean - best) <= TOLERANCE * abs(best) else mark
    return Quality(cell.mean, mark)


def _able(case: Case, known: _Known) -> tuple[list[Candidate], dict[str, str]]:
    """What can do the case, the best first, and why the others cannot."""
    found = {label: _candidate(case, known, label) for label in known.entries}
    able = [one for one in found.values() if isinstance(one, Candidate)]
    able.sort(key=lambda f: (f.ratio.value if f.ratio else 1e9 + _power(f.cost), f.mechanism))
    return able, known.unread | {label: one for label, one in found.items() if isinstance(one, str)}


def _candidate(case: Case, known: _Known, label: str) -> Candidate | str:
    """It, or why it cannot do what is wanted, or cannot be built for this length."""
    if label in known.broken:
        return f"breaks a law. {known.broken[label]}"
    entry = known.entries[label]
    length = case.length
    try:
        sketch = entry.sketch(dim=DIM, num_heads=HEADS, max_len=length + 16)
    except OptionError as error:
        return str(error)
    if refused := entry.refusal(sketch, *case.needs):
        return refused
    can = sketch.capabilities
    cost, memory = (can.state, can.state) if case.decode and can.state else (can.time, can.memory)
    quality = {n: q for n, q in known.quality[label].items() if case.task in (None, n)}
    found = Candidate(mechanism=label, cost=cost, declared_memory=memory, quality=quality)
    rows = known.timed.get(label)
    if not rows:
        return found
    spread = max(abs(math.log(r.values["high_ms"] / r.values["low_ms"])) / 2 for r in rows)
    beside = "T" if case.decode else MIXERS[SOFTMAX].capabilities.time
    ms = _grown(rows, "ms", cost, spread).at(length)
    peak = _grown(rows, "peak_bytes", memory).at(length)
    if case.memory and peak.error is not None and peak.value > case.memory:
        return f"needs {size(peak.value)} at {length:,} tokens, and {size(case.memory)} are allowed"
    ratio = Estimate(1.0, 0.0, ms.measured)
    if label != SOFTMAX:
        ratio = ms.over(_grown(rows, "baseline_ms", beside, spread).at(length))
    return replace(found, ms=ms, ratio=ratio, bytes=peak, causal=rows[-1].causal)


def _grown(rows: Sequence[Row], name: str, cost: str, spread: float = 0.0) -> Growth:
    """Growth of one of the measured numbers, as its declared cost has it."""
    found = tuple((row.setting["length"], float(row.values[name] or 1)) for row in rows)
    return Growth(found, _power(cost), spread)


def _power(cost: str) -> float:
    return growth(cost, 2**12, 2**16)


def _choice(case: Case, ranked: Sequence[Candidate]) -> tuple[str | None, str]:
    """The choice, and the sentence that says why."""
    at = f"at {case.length:,} tokens"
    asked = case.task or "a column"
    softmax = next((found for found in ranked if found.mechanism == SOFTMAX), None)
    fit = [f for f in ranked if f.reached or (case.task is None and not f.is_grey)]
    winners = [
        (ratio, found)
        for found in fit
        if (ratio := found.ratio) and ratio.error is not None
        if max(ratio.high, ratio.value / (1 - LEVEL)) < 1
    ]
    if not ranked:
        return None, "Nothing in the catalogue can do all of this; the reasons are below."
    if softmax and all(found.ratio is None for found in ranked if found is not softmax):
        slower = [found.mechanism for found in ranked if _power(found.cost) < 1.95]
        said = f" By declared cost {_joined(slower[:3])} grow more slowly." if slower else ""
        why = "the ledger has no timing of another mechanism that can do this; --measure takes some in about a minute."
        return SOFTMAX, f"Use fused softmax until something is measured: {why}{said}"
    if winners:
        ratio, best = winners[0]
        how = "measured" if ratio.measured else "by fitted growth"
        how += " within one sequence" * case.cross
        speed, bounds = ratio.speed
        why = f"{speed} as fast as fused softmax {at}{bounds}, {how}, {_judged(best)}."
        return best.mechanism, f"Use {best.mechanism}: {why}"
    if not fit:
        why = f"Nothing that can do this has reached {asked}: train for longer, or at other rates."
        return None, why
    if softmax not in fit:
        why = f"has not reached {asked}" if softmax else "cannot do this, for the reason below"
        return fit[0].mechanism, f"Use {fit[0].mechanism}, {_judged(fit[0])}: fused softmax {why}."
    good = f", {_judged(softmax)}: nothing as good" if softmax and softmax.quality else ": nothing"
    return SOFTMAX, f"Use fused softmax{good} wins {at}."


def _judged(found: Candidate) -> str:
    if not found.quality:
        return "with a quality that nothing here has measured"
    none = "" if found.reached else "none of "
    return f"which reached {none}{_joined(found.reached or list(found.quality))}"


def _notes(case: Case, known: _Known, ranked: Sequence[Candidate]) -> list[str]:
    able = {found.mechanism: found for found in ranked if found.ratio}
    rows = [row for name in able for row in known.timed[name]]
    lengths = ", ".join(f"{n:,}" for n in sorted({row.setting["length"] for row in rows}))
    other = [n for n, found in able.items() if found.causal != (case.causal or case.decode)]
    one_length = [n for n, found in able.items() if found.ratio and found.ratio.error is None]
    unproved = [name for name, found in able.items() if not found.quality]
    unheld = [f.mechanism for f in ranked if case.memory and (not f.bytes or f.bytes.error is None)]
    old = [f"{count} of {label}" for label, count in sorted(known.old.items())]
    where = "".join(
        "One {unit}, batch {batch}, dim {dim}, {num_heads} heads, ".format(**row.setting) + row.provenance.device for row in rows[:1]
    )  # fmt: skip
    told = {
        "No timing for this in the ledger: capabilities and declared costs only.": not rows,
        f"{where}; measured at {lengths} tokens{', queries and keys of one sequence' * case.cross}.": rows,
        f"Timed {'without' if case.causal else 'with'} a causal mask, as was the softmax beside them: {_joined(other)}.": other,
        f"Not held to the bound on memory, since not measured here, or at one length: {_joined(unheld)}.": unheld,
        f"Not chosen for speed, since timed at one length, which shows no growth: {_joined(one_length)}.": one_length,
        f"Quality is not known here of {_joined(unproved)}.": unproved,
        "Reached: the question's mark of accuracy; of other metrics, within 2 % of the best mean. Not reached: with some seed not above "
        "chance, no mixing and the bag; what is so in every column is not chosen.": any(known.quality.values()),
        f"Old results left out, as source or options are others now: {_joined(old)}.": old,
        f"{known.elsewhere} timings left out, of another version, machine, type, size or unit.": known.elsewhere,
    }  # fmt: skip
    return [text for text, is_so in told.items() if is_so]


def _joined(names: Sequence[str]) -> str:
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))
