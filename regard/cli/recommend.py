"""`regard recommend` on the command line: which mechanism for a length and what is needed of it."""

import re
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from tyro.conf import FlagCreatePairsOff, arg

from regard.cli.bench import LEDGER
from regard.cli.names import choice
from regard.cli.printing import print_json, print_table
from regard.core import OptionError
from regard.core.options import CheckedOptions

if TYPE_CHECKING:
    from regard.lab.arena.recommend import Candidate, Estimate

Json = Annotated[FlagCreatePairsOff[bool], arg(help="print data instead of a table")]
Flag = FlagCreatePairsOff[bool]
UNKNOWN = "unknown"
UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30}


@dataclass(frozen=True)
class Recommend(metaclass=CheckedOptions):
    """Which mechanism for your length: what each can do, then what your ledger holds of time, memory and quality."""

    length: int
    """tokens; with --decode, those already read"""
    causal: Flag = False
    cross: Flag = False
    """queries from one sequence, keys from another"""
    padding: Flag = False
    decode: Flag = False
    """token by token"""
    train: Flag = False
    """by the time of a training step instead of a forward pass"""
    memory: str | None = None
    """at most so much for one block: 500MB, 2GiB"""
    task: str | None = None
    """a trained task of the ledger, by whose quality the choice is made"""
    mixers: tuple[str, ...] = ()
    """module:Class of your own, beside the catalogue's"""
    measure: Flag = False
    """take rough timings first, about a minute, and keep them in the ledger"""
    ledger: Path = LEDGER
    json: Json = False

    def run(self) -> int:
        from regard.lab.arena.recommend import Case, measure, recommend
        from regard.lab.arena.report import read_rows
        from regard.lab.experiment.entry import check_entries
        from regard.lab.experiment.ledger import Ledger

        case = Case(
            length=self.length,
            causal=self.causal,
            cross=self.cross,
            padding=self.padding,
            decode=self.decode,
            train=self.train,
            memory=None if self.memory is None else _bytes(self.memory),
            task=self.task,
        )
        own = [choice(name) for name in self.mixers]
        check_entries(own)
        if self.measure:
            with Ledger(self.ledger) as ledger:
                measure(case, ledger, own)
        found = recommend(case, read_rows(self.ledger) if self.ledger.exists() else [], own)
        if self.json:
            print_json(asdict(found))
            return 0
        print(f"{found.sentence}\n")
        if found.ranked:
            print_table(_without_unknown(list(map(_line, found.ranked))))
        if found.excluded:
            print_table(
                {"mechanism": name, "not, because": why} for name, why in found.excluded.items()
            )
        for note in found.notes:
            print(note)
        return 0


def _line(found: "Candidate") -> dict[str, Any]:
    quality = [
        f"{task} {mean:.3f}{'' if good else ' (worse)'}"
        for task, (mean, good) in found.quality.items()
    ]
    return {
        "mechanism": found.mechanism,
        "ms": _said(found.ms, 1),
        "of softmax": _said(found.ratio, 1),
        "peak MB": _said(found.bytes, 1e6),
        "faster from": "" if found.crossover is None else str(found.crossover),
        "quality": ", ".join(quality) or UNKNOWN,
        "declared": f"{found.cost}; memory {found.declared_memory}",
    }


def _without_unknown(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without the columns of which nothing is known."""
    known = [name for name in lines[0] if any(line[name] not in ("", UNKNOWN) for line in lines)]
    return [{name: line[name] for name in known} for line in lines]


def _said(found: "Estimate | None", unit: float) -> str:
    if found is None:
        return UNKNOWN
    about = f"{'' if found.measured else '~'}{found.value / unit:.3g}"
    ends = [f"{float(f'{end / unit:.2g}'):g}" for end in (found.low, found.high)]
    if found.error is None:
        return f"{about} (error unknown)"
    return about if ends[0] == ends[1] else f"{about} ({ends[0]} to {ends[1]})"


def _bytes(text: str) -> float:
    parts = re.fullmatch(r"([\d.]+)\s*([kMG]i?|)B?", text)
    try:
        return float(parts[1]) * UNITS[parts[2]]  # type: ignore[index]
    except (TypeError, KeyError, ValueError):
        raise OptionError(f"memory ({text!r}) must be a size such as 500MB or 2GiB") from None
