"""Ledgers as a forger would write them: sound as files, with rows of his own."""

import json
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from regard.lab.arena.ledger import Ledger, _link, _row_hash, canonical
from regard.lab.arena.results import Result
from tests.lab.arena.made_up import rows

KINDS = ("trained", "timed", "not run", "checked")


def one_of_each() -> dict[str, dict[str, Any]]:
    """Kind -> the fields of a good row, as JSON holds them."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows():
        found.setdefault(kind(row), json.loads(canonical(row)))
    return found


def kind(row: Result) -> str:
    names = dict(zip(("Trained", "Timed", "NotRun", "LawsChecked"), KINDS, strict=True))
    return names[type(row).__name__]


def write(path: Path, texts: Iterable[tuple[str, str]]) -> Path:
    """A ledger of these (kind, JSON) rows, with every checksum in order."""
    Ledger(path).close()
    with sqlite3.connect(path) as connection:
        chain, number = "", 0
        for number, (name, text) in enumerate(texts, start=1):
            key = f"{number:064x}"
            digest = _row_hash(number, key, name, text)
            stored = (number, key, name, text, digest)
            connection.execute("INSERT INTO trials VALUES (?, ?, ?, ?, ?)", stored)
            chain = _link(chain, type("Row", (), {"sha256": digest})())
        connection.execute("UPDATE format SET rows = ?, chain = ?", (number, chain))
    connection.close()
    return path
