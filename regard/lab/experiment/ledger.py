"""Ledger: the file in which every result is kept, one row for each trial, under the hash of the trial's content.

SQLite with a rollback journal and full synchronisation: what `put` has returned from survives `kill -9` and power loss,
in one file. A damaged file is never repaired or replaced.

Each row carries its own sha256, and the rows are chained by another: opening the file finds a row that was altered, lost, added,
exchanged or cut off by an accident, or by a program that does not know how they are chained. The chain has no secret. It cannot
find rows by somebody who computes it anew, an older copy of the whole file in the place of a newer one, or a number that
was wrong when it was put in. Bytes that hold no row (free pages, page heads) are checked by SQLite's own integrity check, as far as that goes.
"""

import errno
import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from regard.core import OptionError, Options, PathError, StoredDataError, files, visible
from regard.core.files import path_error, reported, text_sha256, whole
from regard.lab.data.owners import locked
from regard.lab.experiment.row import Row, canonical, plain, read_row

Kept = tuple[str, str, str]  # key, kind and text of a row
FORMAT = 2
APPLICATION = 0x52474152  # "RGAR" in the header, which marks the database as ours
BUSY_SECONDS = 60
_SCHEMA = f"""
    PRAGMA application_id = {APPLICATION};
    CREATE TABLE format (version INTEGER NOT NULL, rows INTEGER NOT NULL, chain TEXT NOT NULL);
    CREATE TABLE trials (number INTEGER PRIMARY KEY, key TEXT NOT NULL UNIQUE, kind TEXT NOT NULL,
                         result TEXT NOT NULL, sha256 TEXT NOT NULL);
    INSERT INTO format VALUES ({FORMAT}, 0, '');
"""
_SELECT = "SELECT number, key, kind, result, sha256 FROM trials"


def trial_key(content: Options) -> str:
    """sha256 of the content as canonical JSON: equal for equal content, whatever the order of its fields."""
    return text_sha256(canonical(content))


def row_key(row: Row) -> str:
    """Key of a row's trial: what the row is of, and from which seed, rate and data, on which machine, or when."""
    if row.kind == "laws":
        return row.cell
    if row.kind == "asked":
        return trial_key({"kind": "asked", "config": row.config, "started": row.provenance.started})
    if row.kind == "timed":
        return trial_key({"cell": row.cell, "machine": row.provenance.machine})
    return trial_key({"cell": row.cell, "seed": row.seed, "rate": row.rate, "data": row.data})


class Ledger:
    """Results by trial. Opening reads and verifies every row; a new path makes a new ledger.

    Several processes may write to one ledger. The first result of a trial stays: putting another under the same key
    changes nothing.

    >>> ledger = Ledger("runs/ledger.sqlite")
    >>> ledger.put(trial_key({"task": "listops", ...}), result)

    Raises StoredDataError, naming the file and what is wrong, if it is truncated, altered or no ledger; PathError where it
    cannot be opened or written.
    """

    def __init__(self, path: str | Path):
        self.path = Path(path)
        self._known = dict[str, Row]()
        self._cells = dict[str, list[Row]]()
        self._last = 0  # number of the last row that was read
        with reported(self.path, "opened"):
            if not self.path.exists():
                _create(self.path)
            elif not self.path.is_file() or self.path.stat().st_size == 0:
                raise self._damaged("is empty" if self.path.is_file() else "is not a file")
        with self._named("read"):
            self._connection = sqlite3.connect(
                self.path, timeout=BUSY_SECONDS, isolation_level=None
            )
        try:
            self._read("PRAGMA synchronous = EXTRA")
            self._verified()
        except BaseException:
            self.close()
            raise

    def get(self, key: str) -> Row | None:
        """The result of this trial, or None if it has not been run."""
        return self._all().get(key)

    def put(self, key: str, row: Row) -> None:
        """Keep this result; when this returns it is on the disk. OptionError for one that could not be read again, PathError
        where the disk is full, say.
        """
        text = canonical(plain(row))
        try:
            read_row(json.loads(text))
        except ValueError as error:
            raise OptionError(f"this result cannot be kept: {error}") from None
        self._keep([(key, row.kind, text)])

    def merge(self, other: "Ledger") -> int:
        """Keep every row of another ledger whose trial is not here yet, all of them or none. Returns how many were new."""
        return self._keep([(row.key, row.kind, row.result) for row in other._verified()])

    def _keep(self, given: Iterable[Kept]) -> int:
        new = 0
        with self._named("written"), self._connection as connection:  # commits, or rolls back
            connection.execute("BEGIN IMMEDIATE")
            ((rows, chain),) = connection.execute("SELECT rows, chain FROM format")
            for key, kind, text in given:
                if connection.execute("SELECT 1 FROM trials WHERE key = ?", (key,)).fetchone():
                    continue
                new += 1
                content = rows + new, key, kind, text
                row = _StoredRow(*content, _row_hash(*content))
                connection.execute("INSERT INTO trials VALUES (?, ?, ?, ?, ?)", row)
                chain = _link(chain, row)
            connection.execute("UPDATE format SET rows = ?, chain = ?", (rows + new, chain))
        return new

    def rows(self) -> list[Row]:
        """All results, oldest first."""
        return list(self._all().values())

    def of_cell(self, cell: str) -> list[Row]:
        """The results of one cell, oldest first."""
        self._all()
        return self._cells.get(cell, [])

    def asked(self, question: str) -> list[Row]:
        """A question's records, in the order in which it was asked."""
        mine = (row for row in self.rows() if row.kind == "asked" and row.question == question)
        return sorted(mine, key=lambda row: row.provenance.started)

    def write_rows(self, path: Path, question: str) -> int:
        """The rows of a question as lines of JSON, for one that takes longer than a sitting; the number of lines.

        What the file holds stays in it, also what another process has just written.
        """
        cells = {line[2] for row in self.asked(question) for line in row.config["cells"]}
        own = {
            key: canonical(plain(row))
            for key, row in self._all().items()
            if row.cell in cells or row.question == question
        }
        with locked(path):
            if path.exists():
                own |= {key: text for key, _, text in _rows_of(path)}
            with whole(path) as partial, partial.open("w", encoding="utf-8") as file:
                for key, text in own.items():
                    file.write(f'{{"key":"{key}","row":{text}}}\n')
        return len(own)

    def read_rows(self, path: Path) -> int:
        """Keep the rows of such a file whose trials are not here yet. Returns how many were new. StoredDataError for what is none."""
        return self._keep(_rows_of(path))

    def close(self) -> None:
        self._connection.close()

    def __enter__(self) -> "Ledger":
        return self

    def __exit__(self, *exception: object):
        self.close()

    def __contains__(self, key: str) -> bool:
        return key in self._all()

    def _all(self) -> dict[str, Row]:
        """Key -> row, oldest first; what is new is read."""
        for found in self._read(f"{_SELECT} WHERE number > ? ORDER BY number", self._last):
            stored = self._intact(_StoredRow(*found))
            try:
                row = read_row(json.loads(stored.result))
            except (TypeError, ValueError, RecursionError) as error:
                raise self._damaged(
                    f"has a row that cannot be read: {stored.number}, {error}", mended=False
                ) from error
            self._last = stored.number
            self._known[stored.key] = row
            self._cells.setdefault(row.cell, []).append(row)
        return self._known

    def _read(self, query: str, *values: str | int) -> list[tuple]:
        with self._named("read"):
            return self._connection.execute(query, values).fetchall()

    @contextmanager
    def _named(self, done: str) -> Iterator[None]:
        """SQLite's errors, and one in SQLite's own complaint about an altered table, as ones about the path."""
        try:
            yield
        except (UnicodeDecodeError, sqlite3.Error) as error:
            raise failure(self.path, error) or self._damaged(
                f"cannot be {done} ({error})"
            ) from error

    def _verified(self) -> list["_StoredRow"]:
        self._read("BEGIN")  # one view of both tables, though another process may be writing
        try:
            ((application,),) = self._read("PRAGMA application_id")
            if application != APPLICATION:
                raise self._damaged("is a database of another program")
            faults = self._read("PRAGMA integrity_check(1)")
            if faults != [("ok",)]:
                raise self._damaged(f"is truncated or altered ({faults[0][0]})")
            header = self._read("SELECT version, rows, chain FROM format")
            rows = [_StoredRow(*row) for row in self._read(f"{_SELECT} ORDER BY number")]
        finally:
            self._connection.rollback()
        if len(header) != 1:
            raise self._damaged(f"has {len(header)} format lines, and needs one")
        version, count, last = header[0]
        if version != FORMAT:
            raise self._damaged(
                f"has format {version!r}, and this version of regard reads format {FORMAT}",
                mended=False,
            )
        chain = ""
        for expected, row in enumerate(rows, 1):
            if row.number != expected:
                raise self._damaged(f"lacks row {expected}")
            chain = _link(chain, self._intact(row))
        if len(rows) != count:
            raise self._damaged(f"holds {len(rows)} rows where {count} were written")
        if chain != last:
            raise self._damaged("has rows that were exchanged")
        return rows

    def _intact(self, row: "_StoredRow") -> "_StoredRow":
        if row.sha256 != _row_hash(*row[:4]):
            raise self._damaged(
                f"has an altered row: {row.number} ({row.kind}, key {str(row.key)[:12]})"
            )
        return row

    def _damaged(self, what: str, *, mended: bool = True) -> StoredDataError:
        instead = "Restore it from a copy, or" if mended else "Use that version of regard, or"
        return StoredDataError(
            f"ledger {self.path} {visible(what)}. {instead} name another file to start anew."
        )


def failure(path: Path, error: Exception) -> PathError | None:
    """SQLite's error as one about the path; None where the content is damaged."""
    name = getattr(error, "sqlite_errorname", "")
    if name in ("SQLITE_BUSY", "SQLITE_LOCKED"):
        return path_error(path, None, f"another process has held it for {BUSY_SECONDS} seconds")
    for start, (number, said) in _FAILURES.items():
        if name.startswith(start) and name != "SQLITE_IOERR_SHORT_READ":
            return path_error(path, number, said)
    return None


_FAILURES = {
    "SQLITE_FULL": (errno.ENOSPC, ""),
    "SQLITE_IOERR": (errno.EIO, ""),
    "SQLITE_READONLY": (None, "it may only be read"),
    "SQLITE_PERM": (errno.EACCES, ""),
    "SQLITE_CANTOPEN": (None, "it, or its journal beside it, cannot be opened"),
}


class _StoredRow(NamedTuple):
    number: int
    key: str
    kind: str
    result: str
    sha256: str


def _row_hash(*content: object) -> str:
    """content: number, key, kind and result."""
    return text_sha256(json.dumps(content, default=repr))


def _link(chain: str, row: _StoredRow) -> str:
    return text_sha256(f"{chain}{row.sha256}")


def _create(path: Path) -> None:
    """An empty ledger, written whole; where two processes come at once, the second finds the first one's."""
    with locked(path):
        if path.exists():
            return
        with whole(path) as partial:
            try:
                connection = sqlite3.connect(partial)
                connection.executescript(f"BEGIN; {_SCHEMA} COMMIT;")
                connection.close()
            except sqlite3.Error as error:
                raise failure(path, error) or error from error


def _rows_of(path: Path) -> Collection[Kept]:
    """Key, kind and text of each row of such a file. StoredDataError for a line that is none, or that tells of a trial otherwise than another."""
    given = dict[str, Kept]()
    with reported(path, "read"):
        lines = files.plain(path).read_text("utf-8", "replace").splitlines()
    for number, line in enumerate(lines, 1):
        try:
            content = json.loads(line)
            row = read_row(content["row"])
            key = content["key"]
            if key != row_key(row):
                raise ValueError("its key is not the row's")
            stored = (key, row.kind, canonical(plain(row)))
            if given.setdefault(key, stored) != stored:
                raise ValueError("an earlier line tells of the same trial otherwise")
        except (ValueError, TypeError, LookupError, RecursionError) as error:
            raise StoredDataError(
                f"{path} has a line that cannot be read: {number}, {visible(str(error))}"
            ) from error
    return given.values()
