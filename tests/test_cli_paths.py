"""Paths that cannot be used, full disks and interruptions: one line that says what and why, and no traceback."""

import errno
import os
import signal
import sqlite3
import subprocess
import sys
from unittest import mock

import pytest

import regard
from regard.core import PathError, files
from regard.lab.data.owners import owned
from regard.lab.experiment.ledger import Ledger
from tests.command import QUIET, python, ran, refused
from tests.formats import absent_row

TRAIN = "train digits --model.dim 8 --model.num-heads 2 --model.num-layers 1 --train.steps 2"
TRAIN += " --train.eval-every 2 --train.log-dir None"
TRAINED = "train digits --train.steps 2 --folder 'a b'"


@pytest.fixture
def report_ledger(tmp_path):
    path = tmp_path / "ledger.sqlite"
    with Ledger(path) as ledger:
        ledger.put("k", absent_row("c", "no state"))
    return path


PLACES = dict.fromkeys(("file", "file/deeper"), "a file is in the place of a folder")
PLACES["/proc/nowhere"] = "there is no such file or folder"
LINES = [
    f"{TRAIN} --folder {{}}",
    "arena --ledger LEDGER --folder {}",
    "arena --ledger {}/l.sqlite",
    "report --ledger LEDGER --page {}/page.html",
    "report --ledger LEDGER --page PAGE --picture {}/picture.png",
    "bench --mixers fnet --ledger {}/l.sqlite",
]


@pytest.mark.parametrize("inside", PLACES)
@pytest.mark.parametrize("line", LINES)
def test_an_unusable_path_is_named(capsys, tmp_path, monkeypatch, report_ledger, line, inside):
    for work in ("experiment.speed.measure", "train.run.fit"):
        monkeypatch.setattr(f"regard.lab.{work}", lambda *_, **__: pytest.fail("worked first"))
    (tmp_path / "file").write_text("a file")
    path = inside if inside.startswith("/") else tmp_path / inside
    words = line.replace("LEDGER", str(report_ledger)).replace("PAGE", f"{tmp_path}/p.html")
    err = refused(capsys, words.format(path))
    assert str(path) in err and PLACES[inside] in err


def test_nothing_but_a_plain_file_is_replaced(tmp_path):
    """`tests.faults` fills the disk and kills the writer."""
    (tmp_path / "there").write_text("old")
    (tmp_path / "link").symlink_to("there")
    (tmp_path / "device").symlink_to("/dev/full")
    os.mkfifo(tmp_path / "pipe")
    modes = {path: path.lstat().st_mode for path in tmp_path.iterdir()}
    for name in ("link", "device", "pipe"):
        said = f"{name} cannot be written: it is no plain file"
        with pytest.raises(PathError, match=said), files.whole(tmp_path / name) as partial:
            partial.write_text("new")
    for name in ("\ud800", "\udcff"):
        with pytest.raises(PathError, match="its name is not UTF-8"):
            files.check_writable(tmp_path / name, folder=True)
    assert modes == {path: path.lstat().st_mode for path in tmp_path.iterdir()}
    assert (tmp_path / "there").read_text() == "old"


def test_what_is_no_plain_file_is_named_at_once(capsys, tmp_path, report_ledger):
    (tmp_path / "x.png").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "page.html")
    (tmp_path / "loop").symlink_to("loop")
    folder, link = "a folder is in the place", "it is no plain file"
    for line, why in (
        (f"report --ledger {report_ledger} --page {tmp_path}/x.png", folder),
        (f"explore {tmp_path}/absent --text x --page {tmp_path}/x.png", folder),
        (f"explore {tmp_path}/loop --text x --page {tmp_path}/link", link),
        (f"explore {tmp_path}/absent --text x --page {tmp_path}/loop", link),
    ):
        assert f"cannot be written: {why}" in refused(capsys, line)


def test_a_full_disk_is_called_a_full_disk(capsys, tmp_path, monkeypatch, report_ledger):
    fault = OSError(errno.ENOSPC, "No space left on device")
    monkeypatch.setattr(files, "_sync", mock.Mock(side_effect=fault))
    full = "the disk is full. Free some space, then run the same command again"
    assert full in refused(capsys, TRAIN, "--json", "--folder", str(tmp_path / "run"))
    line = f"report --ledger {report_ledger} --page {tmp_path}/p.html"
    assert full in refused(capsys, line)
    with Ledger(report_ledger) as ledger:  # which is not called damaged
        ledger._connection.execute("PRAGMA max_page_count = 6")
        with pytest.raises(PathError, match="the disk is full"):
            ledger.put("k2", absent_row("c", "x" * 19_000))
    with Ledger(report_ledger) as ledger:
        assert len(ledger.rows()) == 1


def test_a_row_altered_behind_an_open_ledger_is_found_by_get(report_ledger):
    with Ledger(report_ledger) as ledger:
        with sqlite3.connect(report_ledger) as other:
            other.execute("UPDATE trials SET result = replace(result, 'no state', 'a state')")
        other.close()
        with pytest.raises(regard.StoredDataError, match="altered row: 1"):
            ledger.get("k")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="this system has no /dev/full")
def test_printing_to_a_full_disk_is_one_line():
    command = [sys.executable, "-m", "regard", "--version"]
    with open("/dev/full", "w") as full:
        how = {"stdout": full, "stderr": subprocess.PIPE, "text": True, "env": os.environ | QUIET}
        done = subprocess.run(command, check=False, **how)
    assert done.returncode == 2 and done.stderr.count("\n") == 1
    assert "the output cannot be used: the disk is full" in done.stderr


@pytest.mark.parametrize("line", [TRAINED, "arena --ledger l.sqlite", "ls mixers"])
def test_an_interrupted_command_says_what_goes_on(capsys, tmp_path, monkeypatch, line):
    monkeypatch.chdir(tmp_path)
    for work in ("lab.train.train", "lab.experiment.run.ask", "cli.commands.overview"):
        monkeypatch.setattr(f"regard.{work}", mock.Mock(side_effect=KeyboardInterrupt))
    code, _, err = ran(capsys, line)
    again = "" if line == "ls mixers" else f". This goes on: regard {line}"
    assert (code, err) == (130, f"regard: interrupted{again}\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_an_interruption_while_torch_is_imported_is_one_line(number):
    command = [sys.executable, "-X", "importtime", "-m", "regard", "ls"]
    quiet, read = subprocess.DEVNULL, subprocess.PIPE
    heard = signal.signal(number, signal.SIG_DFL)  # whoever started the tests may ignore it
    process = subprocess.Popen(command, stdout=quiet, stderr=read, text=True)
    signal.signal(number, heard)
    for line in process.stderr:  # the first part of torch is there, the rest is not
        if "torch" in line:
            break
    process.send_signal(number)
    rest = process.stderr.read()
    assert process.wait(60) == 128 + number
    assert "Traceback" not in rest and "regard: interrupted before it began" in rest


ENDED = """
import os, signal, sys
import regard.cli, regard.cli.describe
sys.argv = ["regard", "ls"]
signal.signal(signal.SIGHUP, signal.SIG_IGN)  # as nohup does

def ended(kind):
    os.kill(os.getpid(), signal.SIGHUP)
    os.kill(os.getpid(), signal.SIGTERM)

regard.cli.describe.overview = ended
regard.cli.run()
"""


def test_a_command_that_is_ended_says_by_what():
    done = python("-c", ENDED)
    assert (done.returncode, done.stderr) == (143, "regard: ended by SIGTERM\n")


@pytest.mark.parametrize("field", ["--seed", "--train.seed", "--task.seed"])
@pytest.mark.parametrize("seed", ["-1", str(2**32)])
def test_seeds_out_of_range_are_refused(capsys, tmp_path, field, seed):
    err = refused(capsys, TRAIN, "--folder", str(tmp_path), field, seed)
    assert f"seed ({seed}) must be an integer of at least 0 and below 2**32" in err
    assert not list(tmp_path.iterdir())


def test_little_memory_is_one_line_before_a_model_is_built_and_later(capsys, tmp_path, monkeypatch):
    line = "train digits --model.dim 2000000 --model.num-heads 4"
    err = refused(capsys, line, "--folder", str(tmp_path))
    assert "free on cpu" in err and "Choose a smaller model" in err
    error = RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory\nstack")
    monkeypatch.setattr("regard.lab.train.train", mock.Mock(side_effect=error))
    assert "out of memory" in refused(capsys, TRAIN, "--folder", str(tmp_path))


def test_a_second_train_is_refused_and_waits_with_wait(capsys, tmp_path):
    with owned(tmp_path / "run"):
        err = refused(capsys, TRAIN, "--folder", str(tmp_path))
    assert f"process {os.getpid()} on" in err and "`--wait` does" in err
    assert ran(capsys, TRAIN, "--folder", str(tmp_path), "--wait")[0] == 0


OVERWRITING = {
    "report --ledger LEDGER --page LEDGER": "--page would overwrite what is read",
    "report --ledger LEDGER --page P --document ./P": "--document would overwrite --page",
    "arena --mixers fnet --ledger LEDGER --rows LEDGER": "--rows would overwrite what is",
    "arena --mixers fnet --page P --rows ./P": "--rows would overwrite --page",
    "explore nowhere --file LEDGER --page LEDGER": "--page would overwrite what is read",
    "explore folder --page folder/config.json": "--page would overwrite what is read",
    "explore folder --compare other --page other/p/x.json": "--page would overwrite what is read",
    "explore folder --page folder/page.html": "is no folder of `regard train`",
}


@pytest.mark.parametrize("line", OVERWRITING)
def test_nothing_is_overwritten(capsys, tmp_path, monkeypatch, report_ledger, line):
    monkeypatch.chdir(tmp_path)
    before = report_ledger.read_bytes()
    assert OVERWRITING[line] in refused(capsys, line.replace("LEDGER", str(report_ledger)))
    assert report_ledger.read_bytes() == before
