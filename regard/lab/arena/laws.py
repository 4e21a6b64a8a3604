"""A mechanism's laws, checked once for each state of the source; a ledger keeps the verdict."""

import time
from typing import NamedTuple

from regard.lab.arena.choice import Choice
from regard.lab.arena.ledger import Ledger, trial_key
from regard.lab.arena.provenance import provenance, source_sha256, versions
from regard.lab.arena.results import LawsChecked
from regard.lab.arena.source import LIBRARY
from regard.mixers.build import resolve
from regard.testing import LawError, check_mixer


class Question(NamedTuple):
    """A choice and the source that is to be judged."""

    choice: Choice
    source: str
    key: str  # of the verdict in the ledger


def question(choice: Choice, ledger: Ledger) -> Question:
    """Its verdict is in the ledger if the newest one was on this source; an older one is not enough, even if it was."""
    options = dict(choice.options)
    checked = [row for row in ledger.results() if isinstance(row, LawsChecked)]
    checked.sort(key=lambda row: row.provenance.started)  # a merged ledger's come last in the file
    earlier = [row for row in checked if (row.mixer, row.options) == (choice.name, options)]
    source = trial_key(choice.identity() | {"package": source_sha256()})
    same = bool(earlier) and earlier[-1].source_sha256 == source
    again = len(earlier) - 1 if same else len(earlier)
    key = trial_key({"kind": "checked", "source": source, "verdict": again} | versions())
    return Question(choice, source, key)


def fault(row: LawsChecked) -> str | None:
    """Why the mechanism may not be measured, or None."""
    return None if row.failed_law is None else f"{row.mixer} breaks a law. {row.message}"


def verdict(choice: Choice, ledger: Ledger, command: str | None = None) -> LawsChecked:
    """From the ledger, or judged now and put into it."""
    asked = question(choice, ledger)
    row = ledger.get(asked.key)
    if row is None:
        row = judge(asked, command)
        ledger.put(asked.key, row)
    assert isinstance(row, LawsChecked)
    return row


def judge(asked: Question, command: str | None = None) -> LawsChecked:
    choice = asked.choice
    origin = provenance(device="cpu", dtype="float64", command=command)
    began, failed, message = time.perf_counter(), None, ""
    ours = choice.source == LIBRARY  # the library's tests check its defaults whole
    try:
        check_mixer(lambda: choice.build(dim=24, num_heads=3, max_len=64), variant=ours)
    except LawError as error:
        inherited = resolve(choice.mixer).name
        message = str(error).splitlines()[0]
        message = message.replace(f": {inherited}: ", f": {choice.name}: ", 1)
        failed = message.partition(":")[0]
    return LawsChecked(
        mixer=choice.name,
        source=choice.source,
        options=dict(choice.options),
        source_sha256=asked.source,
        failed_law=failed,
        message=message,
        seconds=time.perf_counter() - began,
        provenance=origin,
    )
