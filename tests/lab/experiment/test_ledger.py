"""The ledger keeps what was committed, finds what was done to it, and takes no row that is none; `tests.faults` damages and kills."""

import io
import json
import shutil
import sqlite3
from dataclasses import replace
from pathlib import Path

import pytest
from rich.console import Console

from regard.core import OptionError, StoredDataError
from regard.lab import Setting
from regard.lab.experiment.ledger import Ledger, row_key, trial_key
from regard.lab.experiment.provenance import allocator
from regard.lab.experiment.results import Results
from regard.lab.experiment.row import Provenance, Row, canonical, plain, read_row
from regard.lab.experiment.stored import hints
from regard.lab.report import terminal
from regard.lab.report.told import told
from tests.lab.experiment.tiny import TINY, WHERE, asked, made_up
from tests.payloads import PAYLOADS

ROW = Row(
    kind="trained", question="q", column="c", entry="softmax", cell="c" * 64, source="s", provenance=WHERE,
    rate=1e-3, metric="accuracy", scores=[0.0, 1.0], curve=[(1, 0.25), (2, 0.5)],
)  # fmt: skip


def trained(seed=0, value=0.5):
    return replace(ROW, seed=seed, value=value, valid_value=value)


@pytest.fixture(scope="module")
def twenty(tmp_path_factory):
    path = tmp_path_factory.mktemp("twenty") / "ledger.sqlite"
    with Ledger(path) as ledger:
        for seed in range(20):
            ledger.put(row_key(trained(seed)), trained(seed))
    return path


@pytest.fixture
def path(twenty, tmp_path):
    return Path(shutil.copy(twenty, tmp_path))


def test_rows_come_back_equal_and_in_order(path):
    with Ledger(path) as ledger:
        assert ledger.rows() == [trained(seed) for seed in range(20)]
        assert ledger.of_cell("c" * 64) == ledger.rows() and ledger.of_cell("d") == []
        assert ledger.get(row_key(trained(3))) == trained(3) and ledger.get("no") is None
        assert row_key(trained(3)) in ledger and row_key(trained(20)) not in ledger
        ledger.put(row_key(trained(0)), trained(0, value=0.9))
        assert ledger.rows()[0].value == 0.5, "the first result of a trial stands"


def test_merging_keeps_each_trial_once(path, tmp_path):
    assert trial_key({"a": 1, "b": {"c": 2, "d": 3}}) == trial_key({"b": {"d": 3, "c": 2}, "a": 1})
    with Ledger(tmp_path / "other.sqlite") as other, Ledger(path) as ledger:
        for row in (trained(3, value=0.9), trained(77)):
            other.put(row_key(row), row)
        assert ledger.merge(other) == 1 and ledger.merge(other) == 0 and other.merge(ledger) == 19
        rows = jsonl(tmp_path, line(trained(50)), line(trained(50)), line(trained(3, value=0.9)))
        assert ledger.read_rows(rows) == 1 and ledger.read_rows(rows) == 0
        assert [row.seed for row in ledger.rows()] == [*range(20), 77, 50]
        assert ledger.get(row_key(trained(3))).value == 0.5


def test_a_foreign_file_is_named(tmp_path):
    text = "no database, and longer than one header of a hundred bytes would be " * 3
    (tmp_path / "notes.txt").write_text(text)
    with sqlite3.connect(tmp_path / "other.sqlite") as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    known = {"notes.txt": "cannot be read", "other.sqlite": "is a database of another program"}
    for name, why in (known | {".": "is not a file"}).items():
        with pytest.raises(StoredDataError, match=f"{name} {why}"):
            Ledger(tmp_path / name)


@pytest.mark.parametrize(("statement", "complaint"), [
    ("UPDATE trials SET result = replace(result, '0.5', '0.9') WHERE number = 7", "an altered row: 7 .trained"),
    ("UPDATE trials SET kind = 'timed' WHERE number = 7", "an altered row: 7"),
    ("DELETE FROM trials WHERE number = 7", "lacks row 7"),
    ("DELETE FROM trials WHERE number = 20", "holds 19 rows where 20 were written"),
    ("UPDATE format SET version = 1", "has format 1, and this version of regard reads format 2"),
    ("DELETE FROM format", "has 0 format lines"),
    ("DROP TABLE trials", "cannot be read .no such table"),
])  # fmt: skip
def test_an_altered_file_is_named(path, statement, complaint):
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(StoredDataError, match=complaint):
        Ledger(path)


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    folder = tmp_path_factory.mktemp("good")
    question = replace(TINY, vary=(*TINY.vary, Setting(kind="forward", length=8)))
    with Ledger(folder / "l.sqlite") as ledger:
        record = asked(question, ledger, folder)
    row = made_up(record, "softmax", (0.5,))[0]
    figures = dict(ms=1.0, low_ms=1.0, high_ms=1.0, baseline_ms=1.0, rounds=5, peak_bytes=9)
    setting = dict(kind="forward", length=8, batch=1, dim=4, num_heads=2, unit="block", impl="plain")  # fmt: skip
    timed = replace(row, kind="timed", column="forward 8", cell="t" * 64, values=figures, setting=setting)  # fmt: skip
    laws = replace(row, kind="laws", reason="it breaks one", value=None)
    every = {one.kind: one for one in (record, row, timed, laws)}
    return {kind: json.loads(canonical(plain(one))) for kind, one in every.items()}


def places(value, at=()):
    yield at
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():  # fmt: skip
        yield from places(value[key], (*at, key))


GONE = object()


def changed(row, at, value):
    row = json.loads(json.dumps(row))
    inside = row
    for key in at[:-1]:
        inside = inside[key]
    if value is not GONE:
        inside[at[-1]] = value
    elif len(at) > 1 and isinstance(at[-1], str):
        del inside[at[-1]]
    return row


FIELDS = {(name,): of for name, of in hints(Row).items() if name != "provenance"}
FIELDS |= {("provenance", name): of for name, of in hints(Provenance).items()}
NEVER = [None, [], {}, [[1]], {"a": {"b": "\ud800"}}, "\udc80", "x" * 20_001, -1, 10**30, 1e300, True]  # fmt: skip
"""Values of which most are wrong for any one field."""


def test_a_field_of_the_wrong_type_is_refused_by_name(good):
    for at, known in FIELDS.items():
        refused = 0
        for value in (*NEVER, *PAYLOADS):
            try:
                read = read_row(changed(good["trained"], at, value))
            except ValueError as error:
                assert at[-1] in str(error)
                refused += 1
            else:
                assert getattr(read.provenance if at[1:] else read, at[-1]) == value
        assert refused >= (5 if known in (str, str | None) else len(PAYLOADS))


@pytest.mark.parametrize("kind, field", [("asked", "config"), ("timed", "setting"), ("timed", "values")])  # fmt: skip
def test_whatever_stands_in_a_free_field_is_refused_or_drawn(good, kind, field):
    """No forged question, timing or claim stops the page: it is no row, or it is shown."""
    drawn, refused = 0, 0
    others = [read_row(one) for name, one in good.items() if name != kind]
    for at in places(good[kind][field], (field,)):
        for value in (None, [], {}, 0, "x", True, [[]], GONE):
            try:
                row = read_row(changed(good[kind], at, value))
            except ValueError:
                refused += 1
                continue
            Console(file=io.StringIO()).print(terminal([row, *others]))
            drawn += 1
    assert refused > 20 and drawn > 0


def test_a_setting_that_no_pass_has_is_refused(good):
    wrong = [("kind", "x"), ("unit", "x")]
    wrong += [(n, v) for n in ("length", "batch", "dim", "num_heads") for v in (0, -1)]
    for name, value in wrong:
        for kind, at in (("timed", ()), ("asked", ("config", "columns", 1))):
            with pytest.raises(ValueError):
                read_row(changed(good[kind], (*at, "setting", name), value))


def test_a_timing_of_another_setting_than_its_columns_is_not_shown(good):
    record, row = (read_row(good[kind]) for kind in ("asked", "timed"))
    (cell,) = [cell for label, name, cell, *_ in record.config["cells"] if (label, name) == ("softmax", "forward 8, unit=layer")]  # fmt: skip
    setting = next(one["setting"] for one in record.config["columns"] if one["kind"] == "timed")
    mine = {name: setting[name] for name in ("kind", "length", "batch", "dim", "num_heads", "unit")}
    row = replace(row, cell=cell, question=record.question, setting=mine | {"impl": "plain"})
    assert Results(record, [row]).timed and not Results(record, [row]).old
    forged = replace(row, setting=row.setting | {"length": 10**9})
    found = Results(record, [forged])
    assert not found.timed and found.old == {"softmax": 1}
    (other,) = [cell for label, name, cell, *_ in record.config["cells"] if (label, name) == ("local, window 4", "forward 8, unit=layer")]  # fmt: skip
    there = replace(row.provenance, device="another", started="2098-01-01T00:00:00+00:00")
    beside = replace(row, cell=other, entry="local, window 4", provenance=there)
    found = told([record, row, beside])["questions"][0]  # one machine a column
    assert found["device"] == "another" and found["old"] == {"softmax": 1}
    unlike = [replace(row, provenance=replace(row.provenance, allocator=of)) for of in ("default", "MALLOC_TOP_PAD_=1")]  # fmt: skip
    assert [row_key(one) == row_key(row) for one in unlike] == [True, False]


def test_settings_of_glibc_are_another_allocator(monkeypatch):
    monkeypatch.setenv("GLIBC_TUNABLES", "glibc.malloc.top_pad=1")
    assert "GLIBC_TUNABLES=glibc.malloc.top_pad=1" in allocator()


def jsonl(tmp_path, *lines):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def line(row, key=None):
    return canonical({"key": key or row_key(row), "row": plain(row)})


@pytest.mark.parametrize("bad", [
    "[" * 100_000,
    "null",
    "{}",
    '{"key": 1, "row": {}}',
    line(trained(), key="0" * 64),
    line(trained(), key=row_key(trained(1))),
    line(trained()).replace('"value":0.5', '"value":NaN'),
    line(trained()).replace('"value":0.5', '"value":' + "1" * 5000),
    line(trained()).replace('"rate"', '"\\u001b[2J"'),
    line(trained(50)).replace('"value":0.5', '"value":0.25'),
    "",
])  # fmt: skip
def test_a_file_of_rows_with_a_bad_line_is_refused_whole_in_one_visible_line(tmp_path, path, bad):
    rows = jsonl(tmp_path, line(trained(50)), bad)
    with Ledger(path) as ledger:
        with pytest.raises(StoredDataError, match=r"rows\.jsonl has a line that cannot be read: 2") as error:  # fmt: skip
            ledger.read_rows(rows)
        assert str(error.value).isprintable() and len(ledger.rows()) == 20


def test_what_could_not_be_read_again_is_not_kept(tmp_path):
    with Ledger(tmp_path / "l.sqlite") as ledger:
        with pytest.raises(OptionError, match="seed must hold int, within bounds, got '0'"):
            ledger.put("k", replace(trained(), seed="0"))
        assert ledger.rows() == []
