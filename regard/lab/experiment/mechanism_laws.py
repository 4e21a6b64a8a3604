"""A mechanism's laws, checked once for each state of its source; a ledger keeps the verdict."""

from time import perf_counter

from regard.lab.experiment.display import told
from regard.lab.experiment.entry import Entry
from regard.lab.experiment.ledger import Ledger, trial_key
from regard.lab.experiment.provenance import provenance, versions
from regard.lab.experiment.row import Row, as_json
from regard.mixers import MIXERS
from regard.testing import LawError, check_mixer

OF_OURS = ("reference", "streaming", "long")


def key(entry: Entry) -> str:
    """Key of the verdict in the ledger: of this source, which an edit changes, under these versions."""
    return trial_key({"kind": "laws"} | as_json(entry.identity()) | versions())


def fault(entry: Entry, ledger: Ledger) -> str | None:
    """Why the mechanism may not be measured, or None: from the ledger, or judged now and put into it."""
    row = ledger.get(key(entry))
    if not row:
        row = judge(entry, "laws")
        ledger.put(row.cell, row)
    return row.reason and told(row)


def judge(entry: Entry, question: str, _: None = None) -> Row:
    """Its laws, now; of the library's own, which its tests hold against every law, those that are asked of any options."""
    origin = provenance(dtype="float64", of=entry.commit)
    began = perf_counter()
    message = None
    heads = entry.num_heads
    try:
        laws = OF_OURS if entry.written in MIXERS.values() else "all"
        check_mixer(lambda: entry.build(dim=24, num_heads=heads, max_len=64), laws=laws)
    except LawError as error:
        inherited = f": {entry.written.name}: "
        message = str(error).splitlines()[0].replace(inherited, f": {entry.name}: ", 1)
    return Row(
        kind="laws", question=question, column="laws", cell=key(entry), **entry.facts, reason=message, seconds=perf_counter() - began, provenance=origin,
    )  # fmt: skip
