"""Whether a mechanism keeps its laws: checked once for each state of the source, and kept in a ledger."""

import time
from typing import NamedTuple

from regard.lab.arena.choice import Choice
from regard.lab.arena.ledger import Ledger, trial_key
from regard.lab.arena.provenance import provenance, source_sha256, versions
from regard.lab.arena.results import LawsChecked
from regard.testing import LawError, check_mixer


class Verdict(NamedTuple):
    key: str  # of the row in the ledger
    row: LawsChecked
    new: bool  # judged now, rather than found

    @property
    def fault(self) -> str | None:
        """Why the mechanism may not be measured, or None."""
        if self.row.failed_law is None:
            return None
        return f"{self.row.mixer} breaks a law. {self.row.message}"


def verdict(choice: Choice, ledger: Ledger, command: str | None = None) -> Verdict:
    """Reuses the newest verdict if it was on this source; an older one is not enough, even if it was."""
    options = dict(choice.options)
    checked = [row for row in ledger.results() if isinstance(row, LawsChecked)]
    earlier = [row for row in checked if (row.mixer, row.options) == (choice.name, options)]
    source = trial_key(choice.identity() | {"package": source_sha256()})
    same = bool(earlier) and earlier[-1].source_sha256 == source
    again = len(earlier) - 1 if same else len(earlier)
    key = trial_key({"kind": "checked", "source": source, "verdict": again} | versions())
    known = ledger.get(key)
    if known is not None:
        assert isinstance(known, LawsChecked)
        return Verdict(key, known, new=False)
    row = _judge(choice, source, command)
    ledger.put(key, row)
    return Verdict(key, row, new=True)


def _judge(choice: Choice, source: str, command: str | None) -> LawsChecked:
    origin = provenance(device="cpu", dtype="float64", command=command)
    began, failed, message = time.perf_counter(), None, ""
    try:
        check_mixer(lambda: choice.build(dim=24, num_heads=3, max_len=64))
    except LawError as error:
        message = str(error).splitlines()[0]
        failed = message.partition(":")[0]
    return LawsChecked(
        mixer=choice.name,
        options=dict(choice.options),
        source_sha256=source,
        failed_law=failed,
        message=message,
        seconds=time.perf_counter() - began,
        provenance=origin,
    )
