"""The ledger loses nothing that was committed, and finds what was done to it."""

import os
import signal
import sqlite3
import subprocess
import sys
import time

import pytest

from regard.core import StoredDataError
from regard.lab.arena.ledger import Ledger, trial_key
from regard.lab.arena.results import LawsChecked, NotRun, Provenance, Timed, Trained, current

PROVENANCE = Provenance(
    commit="c0ffee", command="regard arena quick", device="test", threads=1, dtype="float32",
    versions={"torch": "2.13.0"}, started="2026-01-01T00:00:00+00:00",
)  # fmt: skip


def trained(mixer="softmax", task="listops", seed=0, value=0.5):
    return Trained(
        task=task, mixer=mixer, seed=seed, options={"window_size": 3}, metric="accuracy", value=value, better="higher",
        parameters=10, steps=2, tokens=64, seconds=1.5, tokens_per_second=42.0, data_sha256="ab", provenance=PROVENANCE,
        curve=[(1, 0.25), (2, 0.5)],
    )  # fmt: skip


def timed(mixer="softmax", length=256):
    return Timed(
        mixer=mixer, options={}, kind="forward", length=length, batch=1, dim=64, num_heads=4, causal=False,
        median_ms=2.0, low_ms=1.0, high_ms=3.0, baseline_ms=4.0, peak_bytes=100, rounds=5, provenance=PROVENANCE,
    )  # fmt: skip


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        for seed in range(20):
            ledger.put(trial_key({"seed": seed}), trained(seed=seed))
    return path


def test_results_come_back_equal_and_in_order(tmp_path):
    checked = LawsChecked(
        mixer="gau",
        options={},
        source_sha256="ef",
        failed_law="causality",
        message="m",
        seconds=1.0,
        provenance=PROVENANCE,
    )
    rows = [trained(), timed(), NotRun(mixer="fnet", subject="decode", reason="no state"), checked]
    with Ledger(tmp_path / "a" / "b.sqlite") as ledger:
        for number, row in enumerate(rows):
            ledger.put(trial_key({"number": number}), row)
        assert ledger.get(trial_key({"number": 9})) is None
    with Ledger(tmp_path / "a" / "b.sqlite") as ledger:
        assert ledger.results() == rows
        assert [ledger.get(trial_key({"number": n})) for n in range(4)] == rows
        assert trial_key({"number": 3}) in ledger and trial_key({"number": 4}) not in ledger


def test_the_first_result_of_a_trial_stands(path):
    with Ledger(path) as ledger:
        ledger.put(trial_key({"seed": 0}), trained(value=0.9))
        assert ledger.get(trial_key({"seed": 0})).value == 0.5
        assert len(ledger.results()) == 20


def test_keys_depend_on_content_and_not_on_its_order():
    assert trial_key({"a": 1, "b": {"c": 2, "d": 3}}) == trial_key({"b": {"d": 3, "c": 2}, "a": 1})
    assert trial_key({"a": 1}) != trial_key({"a": 2})


def test_merging_keeps_each_trial_once(path, tmp_path):
    with Ledger(tmp_path / "other.sqlite") as other:
        other.put(trial_key({"seed": 3}), trained(seed=3, value=0.9))
        other.put(trial_key({"seed": 77}), trained(seed=77))
        with Ledger(path) as ledger:
            assert ledger.merge(other) == 1 and ledger.merge(other) == 0
            assert other.merge(ledger) == 19
    with Ledger(path) as ledger:
        assert [row.seed for row in ledger.results()] == [*range(20), 77]
        assert ledger.get(trial_key({"seed": 3})).value == 0.5, "the first result stays"


WRITER = """
import sys
from test_ledger import trained
from regard.lab.arena.ledger import Ledger, trial_key
ledger = Ledger(sys.argv[1])
start = len(ledger.results())
for seed in range(start, start + 10_000):
    ledger.put(trial_key({"seed": seed}), trained(seed=seed))
    print(seed, flush=True)
"""


def test_killing_the_writer_loses_nothing_committed(tmp_path):
    path, said = tmp_path / "ledger.sqlite", []
    for attempt in range(4):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)],
            cwd=os.path.dirname(__file__),
            stdout=subprocess.PIPE,
            text=True,
            env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        )
        said.append(int(writer.stdout.readline()))
        time.sleep(0.02 + 0.013 * attempt)
        os.kill(writer.pid, signal.SIGKILL)
        said += [int(line) for line in writer.stdout.read().splitlines() if line.strip()]
        writer.wait()
        with Ledger(path) as ledger:
            seeds = [row.seed for row in ledger.results()]
        assert seeds == list(range(len(seeds)))
        assert set(said) <= set(seeds)
    assert len(said) > 4


@pytest.mark.parametrize("keep", [0, 50, 512, 4096, 8192, -4096, -1])
def test_a_truncated_file_is_named(path, keep):
    content = path.read_bytes()
    path.write_bytes(content[:keep])
    with pytest.raises(StoredDataError, match=f"ledger {path} .*Restore it from a copy"):
        Ledger(path)
    assert path.read_bytes() == content[:keep]


def test_a_foreign_file_is_named(tmp_path):
    text = tmp_path / "notes.txt"
    text.write_text(
        "not a database, and longer than one header of a hundred bytes would need to be " * 3
    )
    with pytest.raises(StoredDataError, match=r"notes\.txt cannot be read"):
        Ledger(text)
    other = tmp_path / "other.sqlite"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE songs (title TEXT)")
    with pytest.raises(StoredDataError, match=r"other\.sqlite is a database of another program"):
        Ledger(other)
    with pytest.raises(StoredDataError, match="is not a file"):
        Ledger(tmp_path)


@pytest.mark.parametrize(
    ("statement", "complaint"),
    [
        (
            "UPDATE trials SET result = replace(result, '0.5', '0.9') WHERE number = 7",
            "an altered row: 7 .trained",
        ),
        ("UPDATE trials SET kind = 'timed' WHERE number = 7", "an altered row: 7"),
        ("DELETE FROM trials WHERE number = 7", "lacks row 7"),
        ("DELETE FROM trials WHERE number = 20", "holds 19 rows where 20 were written"),
        (
            "UPDATE format SET version = 2",
            "has format 2, and this version of regard reads format 1",
        ),
        ("DELETE FROM format", "has 0 format lines"),
        ("DROP TABLE trials", "cannot be read .no such table"),
    ],
)
def test_an_altered_file_is_named(path, statement, complaint):
    with sqlite3.connect(path) as connection:
        connection.execute(statement)
    connection.close()
    with pytest.raises(StoredDataError, match=complaint):
        Ledger(path)


def test_an_altered_table_is_named_though_sqlites_own_complaint_is_no_text(path):
    content = path.read_bytes().replace(b"tabletrialstrials", b"table\xff\xffialstrials")
    path.write_bytes(content.replace(b"CREATE TABLE trials", b"CREATE TABEL trials"))
    with pytest.raises(StoredDataError, match="Restore it from a copy"):
        Ledger(path)


def test_a_flipped_byte_in_a_row_is_found(path):
    content = bytearray(path.read_bytes())
    content[content.rindex(b'"accuracy"') + 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(StoredDataError, match="altered"):
        Ledger(path)


def test_two_ledgers_on_one_file_see_each_other(path):
    with Ledger(path) as one, Ledger(path) as two:
        one.put("k1", trained(seed=100))
        two.put("k2", trained(seed=101))
        assert one.results() == two.results() and len(one.results()) == 22


def checked(failed_law=None):
    return LawsChecked(
        mixer="softmax", options={"window_size": 3}, source_sha256="ef", failed_law=failed_law, message="", seconds=1.0,
        provenance=PROVENANCE,
    )  # fmt: skip


def test_current_keeps_the_newest_row_on_each_subject():
    absent = NotRun(
        mixer="softmax", subject="listops", reason="it fails a law", options={"window_size": 3}
    )
    assert current([absent, trained(value=0.1), trained(value=0.2), timed()]) == [
        trained(value=0.2),
        timed(),
    ]
    assert current([trained(), trained(seed=1), timed(), absent]) == [timed(), absent]


def test_laws_run_anew_forget_what_was_absent():
    absent = NotRun(
        mixer="softmax", subject="listops", reason="it fails a law", options={"window_size": 3}
    )
    failed, mended = checked("causality"), checked()
    assert current([checked(), trained(), failed, absent]) == [failed, absent]
    assert current([checked(), trained(), failed, absent, mended]) == [mended, trained()]
