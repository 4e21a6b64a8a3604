"""`regard recommend` on the command line: which mechanism for a length and what is needed of it."""

from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

from regard.cli.arguments import Flag, Json, Length, Words, amount
from regard.cli.bench import LEDGER
from regard.cli.names import choice
from regard.cli.printing import print_json, print_table
from regard.core import Declared, OptionError

if TYPE_CHECKING:
    from regard.lab.growth import Estimate
    from regard.lab.recommend import Candidate

UNKNOWN = "unknown"


class Recommend(Declared):
    """A mechanism for your length: what each can do, then what your ledger holds of time, memory and quality."""

    length: Length
    """tokens, 8k or 2Ki; with --decode, those already read"""
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
    """a trained column of the ledger's questions, by whose quality the choice is made"""
    mixers: Words = ()
    """module:Class of your own, beside the catalogue's"""
    measure: Flag = False
    """take rough timings first, about a minute, and keep them in the ledger"""
    ledger: Path = LEDGER
    json: Json = False

    def run(self) -> None:
        from regard.lab.experiment.entry import check_entries
        from regard.lab.experiment.ledger import Ledger
        from regard.lab.recommend import Case, measure, recommend
        from regard.lab.report import read_rows

        given = {one.name: getattr(self, one.name) for one in fields(Case)}
        case = Case(**given | {"memory": self.memory and _bytes(self.memory)})
        own = [choice(name) for name in self.mixers]
        check_entries(own)
        if self.measure:
            with Ledger(self.ledger) as ledger:
                measure(case, ledger, own, progress=not self.json)
        rows = read_rows(self.ledger) if self.ledger.exists() else []
        if not rows and self.ledger != LEDGER:
            raise OptionError(f"there is no ledger with results at {self.ledger}")
        found = recommend(case, rows, own)
        if self.json:
            print_json(asdict(found))
            return
        print(f"{found.sentence}\n")
        if found.ranked:
            lines = [*map(_line, found.ranked)]
            known = [n for n in lines[0] if any(line[n] != UNKNOWN for line in lines)]
            print_table({name: line[name] for name in known} for line in lines)
        if found.excluded:
            print_table(
                {"mechanism": name, "not, because": why} for name, why in found.excluded.items()
            )
        for note in found.notes:
            print(note)


def _line(found: "Candidate") -> dict[str, Any]:
    quality = [
        f"{column} {'failed' if mean is None else f'{mean:.3f}'}{'' if mark == 'reached' else f' ({mark or UNKNOWN})'}"
        for column, (mean, mark) in found.quality.items()
    ]
    return {
        "mechanism": found.mechanism,
        "ms": _said(found.ms, 1),
        "of softmax": _said(found.ratio, 1),
        "peak MB": _said(found.bytes, 1e6),
        "quality": ", ".join(quality) or UNKNOWN,
        "declared": f"{found.cost}; memory {found.declared_memory}",
    }


def _said(found: "Estimate | None", unit: float) -> str:
    if not found:
        return UNKNOWN
    about = f"{'' if found.measured else '~'}{found.value / unit:.3g}"
    ends = [f"{float(f'{end / unit:.2g}'):g}" for end in (found.low, found.high)]
    if found.error is None:
        return f"{about} (error unknown)"
    return about if ends[0] == ends[1] else f"{about} ({ends[0]} to {ends[1]})"


def _bytes(text: str) -> float:
    try:
        return amount(text.removesuffix("B"))
    except ValueError:
        raise OptionError(f"memory ({text!r}) must be a size such as 500MB or 2GiB") from None
