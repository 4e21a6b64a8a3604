"""Faults on purpose, with counts: kills in training and in saving, flipped bytes, damaged files, several writers, full and read-only disks, bad calls.

    python -m tests.faults                      # all parts, about five minutes; the counts go to docs/faults.json
    python -m tests.faults --part flips disk    # some of them; the counts of the others stay

Each part is a function that returns its counts; a count of what must not happen is in `wrong`, and a part with one that is not
zero makes the exit code 1. Everything is made from seeds, but the moment of a kill.
"""

import argparse
import contextlib
import errno
import itertools
import json
import multiprocessing
import os
import random
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from regard import hf
from regard.core import PathError, RegardError, files
from regard.explore import Page
from regard.lab.data.owners import owned
from regard.lab.experiment.ledger import Ledger, trial_key
from regard.lab.experiment.row import Row
from regard.lab.experiment.workers import Claims, Job, share
from regard.lab.train import checkpoint, fit
from regard.lab.train.checkpoint import Checkpoint
from tests.bad_calls import bad_calls, small_llama
from tests.conftest import origin
from tests.formats import SAMPLES, Sample, absent_row, equal, plain_files
from tests.lab.train.tiny import CONFIG, Majority, tiny_model

FORK = multiprocessing.get_context("fork")
SECONDS = 1.0  # that reading a damaged file may take
FIXED = 2**21  # bytes beside twice the size: error texts, and the blocks that decoders work in
NOBODY = 65534


@dataclass
class Counts:
    """done: what was tried. held: what came out as it must. wrong: what must never happen."""

    done: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=dict)

    def check(self, holds: bool, held: str, wrong: str) -> None:
        (self.held if holds else self.wrong)[held if holds else wrong] += 1

    def most(self, name: str, value: float) -> None:
        self.worst[name] = max(value, self.worst.get(name, 0.0))


def kills(folder: Path, saving: int, training: int) -> Counts:
    counts = Counts()
    ways = [("checkpoint", Checkpoints(), False)]
    _kills_in_saving(folder / "saving", saving, ways, counts)
    _kills_in_training(folder / "training", training, counts)
    return counts


def saves(folder: Path, number: int) -> Counts:
    counts = Counts()
    savers = {"page": Pages(), "folder": Folders()}.items()
    ways = [(name, saver, over) for name, saver in savers for over in (False, True)]
    _kills_in_saving(folder, number, ways, counts)
    return counts


class Checkpoints:
    """A checkpoint, whose weights are all its number; the first and the newest two stay."""

    def save(self, path: Path, number: int) -> None:
        weights = {"w": torch.full((256, 1024), float(number))}
        checkpoint.save(path, Checkpoint(weights, {}, {"step": number}))
        checkpoint.prune(path.parent, 2, checkpoint.path_of(path.parent, 1))

    def read(self, path: Path) -> int:
        stored = checkpoint.load(path)
        (number,) = {stored.state["step"], *stored.model["w"].flatten().tolist()}
        return int(number)


class Pages:
    """A page of `regard.explore`, which says its number many times."""

    def save(self, path: Path, number: int) -> None:
        Page(html=f"<p>{number}" * 20_000).save(path)

    def read(self, path: Path) -> int:
        (number,) = {*path.read_text().split("<p>")} - {""}
        return int(number)


class Folders:
    """A folder of `regard.hf`, whose weights are all its number."""

    def __init__(self) -> None:
        self.model = small_llama()

    def save(self, path: Path, number: int) -> None:
        with torch.no_grad():
            for weight in self.model.parameters():
                weight.fill_(number)
        hf.save(self.model, path)

    def read(self, path: Path) -> int:
        (number,) = {*torch.cat([w.flatten() for w in hf.load(path).parameters()]).tolist()}
        return int(number)


def _last_saved(saver: Any, root: Path, over: bool, moments: random.Random) -> int:
    """The last number that was said to be saved, before that process was killed at a random moment."""
    ours, theirs = FORK.Pipe(duplex=False)
    child = FORK.Process(target=_save_again, args=(saver, root, over, theirs))
    child.start()
    theirs.close()
    for _ in range(moments.randint(1, 5)):
        last = ours.recv()
    time.sleep(moments.uniform(0, 0.03))
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with contextlib.suppress(EOFError):
        while True:
            last = max(last, ours.recv())
    ours.close()
    return last


def _kills_in_saving(root: Path, tries: int, ways: Sequence[Any], counts: Counts) -> None:
    """A process saves without end, under one name or under ever new ones, and is killed: what has a name is one version, all of it.

    ways: each (name, saver, whether under one name).
    """
    moments = random.Random(0)
    for index in range(tries):
        name, saver, over = ways[index % len(ways)]
        last = _last_saved(saver, root, over, moments)
        counts.done[f"kills in saving a {name}, {'over' if over else 'beside'} the last"] += 1
        for path in root.rglob("*"):
            counts.done["partial files that were left"] += path.name.endswith(files.PARTIAL)
        newest = checkpoint.path_of(root, 1 if over else last)
        counts.check(newest.exists(), f"the newest {name} is there", f"a {name} is gone")
        for path in checkpoint.committed(root):
            try:
                found = saver.read(path)
                right = found in (last, last + 1) if over else path.name == f"step-{found:08d}"
                counts.check(right, f"a {name} is whole", f"a {name} is of two versions")
            except Exception as error:
                counts.wrong[f"a {name} cannot be read: {type(error).__name__}"] += 1
        shutil.rmtree(root)


def _save_again(saver: Any, root: Path, over: bool, said: Any) -> None:
    for number in itertools.count(1):
        saver.save(checkpoint.path_of(root, 1 if over else number), number)
        said.send(number)


RUN = replace(CONFIG, eval_every=5, checkpoint_every=2)


def _train(run_dir: Path, seed: int) -> None:
    fit(tiny_model(seed), Majority(), RUN, run_dir, progress=False)


def _kills_in_training(root: Path, number: int, counts: Counts) -> None:
    """A run is killed again and again until it ends: weights, optimizer and generators are those of a run left alone."""
    _train(root / "alone", 0)
    expected, moments, run = _end(root / "alone"), random.Random(1), 0
    while counts.done["kills in training"] < number:
        run_dir = root / f"run-{run}"
        while True:
            child = FORK.Process(target=_train, args=(run_dir, 0))
            child.start()
            _wait_for_progress(child, run_dir, moments)
            if child.exitcode is not None or counts.done["kills in training"] >= number:
                child.join()
                break
            os.kill(child.pid, signal.SIGKILL)
            child.join()
            counts.done["kills in training"] += 1
        run += 1
        counts.done["runs that were killed until they ended"] += 1
        ended = child.exitcode == 0 and _end(run_dir)
        same = bool(ended) and equal(ended, expected)
        counts.check(same, "runs ended as one left alone", "a run ended otherwise")


def _wait_for_progress(child: Any, run_dir: Path, moments: random.Random) -> None:
    """Until a few checkpoints more are there (none in a fifth of the cases: a kill at the start), and a moment longer."""
    root = run_dir / "checkpoints"
    wanted = {path.name for path in checkpoint.committed(root)}
    for _ in range(moments.choice((0, 1, 1, 2, 3))):
        while child.exitcode is None and {p.name for p in checkpoint.committed(root)} <= wanted:
            child.join(0.002)
        wanted |= {path.name for path in checkpoint.committed(root)}
    child.join(moments.uniform(0, 0.08))


def _end(run_dir: Path) -> Any:
    """Weights, optimizer and generators of the last checkpoint."""
    last = checkpoint.load(checkpoint.committed(run_dir / "checkpoints")[-1])
    return last.model, last.optimizer, last.state["random"]


def flips(folder: Path, number: int) -> Counts:
    """One byte of a stored file is changed: it is refused, or what is read is the same to the last bit."""
    counts, draw = Counts(), random.Random(2)
    for index in range(number):
        sample = SAMPLES[KEPT[index % len(KEPT)]]
        root = copied(sample, folder)
        path = draw.choice(plain_files(root))
        changed = bytearray(path.read_bytes())
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        counts.done[f"flips in {path.name}"] += 1
        try:
            same = equal(sample.read(root), sample.intact)
            counts.check(same, "nothing changed in what is read", "a flip went unnoticed")
        except RegardError:
            counts.held["flips found"] += 1
        except Exception as error:
            counts.wrong[f"raw error: {type(error).__name__}"] += 1
    return counts


KEPT = ("checkpoint", "ledger", "generated data")


def copied(sample: Sample, folder: Path) -> Path:
    """A new copy of the sample's folder, which is written when it is first used."""
    intact, copy = folder / sample.name, folder / "copy"
    if not intact.exists():
        intact.mkdir(parents=True)
        sample.write(intact)
    shutil.rmtree(copy, ignore_errors=True)
    return shutil.copytree(intact, copy)


def mutants(folder: Path, number: int) -> Counts:
    """Files of every format, damaged in many ways: they are read, or refused by our error, in bounded time and memory."""
    counts, draw = Counts(), random.Random(3)
    samples = list(SAMPLES.values())
    for sample in samples:
        sample.read(copied(sample, folder))  # what it imports is not counted
    for index in range(number):
        sample = samples[index % len(samples)]
        root = copied(sample, folder)
        sample.damage(root, draw)
        size = sum(path.stat().st_size for path in plain_files(root))
        _read_mutant(sample, root, size, counts)
    return counts


def _read_mutant(sample: Sample, root: Path, size: int, counts: Counts) -> None:
    counts.done[f"mutants of a {sample.name}"] += 1
    outcome, seconds, peak = _measured(sample, root)
    if seconds > SECONDS or peak > 2 * size + FIXED:
        # The interpreter's own tables grow now and then.
        outcome, *again = _measured(sample, root)
        seconds, peak = min(seconds, again[0]), min(peak, again[1])
    counts.check(outcome in ("read", "refused"), outcome, f"{sample.name}, {outcome}"[:200])
    counts.most(f"{sample.name}: seconds", round(seconds, 3))
    counts.most(f"{sample.name}: bytes above twice the size", float(max(0, peak - 2 * size)))
    if seconds > SECONDS:
        counts.wrong[f"{sample.name}: took more than {SECONDS} s"] += 1
    if peak > 2 * size + FIXED:
        counts.wrong[f"{sample.name}: took more than twice the size and {FIXED} bytes"] += 1


def _measured(sample: Sample, root: Path) -> tuple[str, float, int]:
    """What came of reading it; seconds of the processor; bytes at the highest point."""
    tracemalloc.start()
    began = time.process_time()
    try:
        sample.read(root)
        outcome = "read"
    except RegardError:
        outcome = "refused"
    except Exception as error:
        outcome = f"raw error: {type(error).__name__}: {error}"
    seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return outcome, seconds, peak


def writers(folder: Path, trials: int, killed: int, rounds: int) -> Counts:
    """Two workers sweep one ledger and are killed again and again; two processes want one run folder."""
    counts = Counts()
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(folder / "ledger.sqlite", trials, killed, counts)
    _one_folder(folder, rounds, counts)
    return counts


def _toy(path: Path, trials: int, log: Path) -> None:
    """A worker of the sweep; it notes in `log` what it has finished, before it leaves the trial to others."""
    with Ledger(path) as ledger:

        def job(number: int) -> Job:
            key = trial_key({"trial": number})

            def make(_: None) -> Row:
                time.sleep(0.002)
                return absent_row(f"trial {number}", "a toy")

            def keep(row: Row) -> None:
                ledger.put(key, row)
                with log.open("a") as file:
                    file.write(f"{number}\n")

            return Job(key=key, what=str(number), found=lambda: key in ledger, make=make, keep=keep)

        share([job(number) for number in range(trials)], Claims(path), lambda what: None)


def _sweep(path: Path, trials: int, killed: int, counts: Counts) -> None:
    log, moments = path.with_suffix(".log"), random.Random(4)
    log.touch()

    def start() -> Any:
        worker = FORK.Process(target=_toy, args=(path, trials, log))
        worker.start()
        return worker

    workers = [start(), start()]
    pause = 0.006 * trials / (killed + 1)
    while counts.done["kills of a worker"] < killed:
        time.sleep(moments.uniform(0.5 * pause, pause))
        victim = moments.randrange(2)
        if workers[victim].exitcode is not None:
            break
        os.kill(workers[victim].pid, signal.SIGKILL)
        workers[victim].join()
        counts.done["kills of a worker"] += 1
        workers[victim] = start()
    for worker in workers:
        worker.join(300)
        counts.check(worker.exitcode == 0, "workers ended", "a worker failed")
    with Ledger(path) as ledger:
        subjects = Counter(row.column for row in ledger.rows())
    counts.done["trials"] += trials
    for number in range(trials):
        found = subjects[f"trial {number}"]
        counts.check(found == 1, "trials are in the ledger once", "a trial is lost or twice there")
    finished = Counter(log.read_text().split())
    twice = sum(times > 1 for times in finished.values())
    counts.check(not twice, "no trial was finished twice", "a trial was finished twice")
    counts.held["trials finished by a worker that went on"] += len(finished)


def _enter(path: Path, wait: bool) -> None:
    inside = path.with_name("inside")
    with owned(path, wait=wait):
        inside.mkdir()  # an error where another is in
        time.sleep(0.05)
        inside.rmdir()


def _one_folder(folder: Path, rounds: int, counts: Counts) -> None:
    for number in range(rounds):
        waits = number % 2 == 0
        with ProcessPoolExecutor(2, mp_context=FORK) as pool:
            pair = [pool.submit(_enter, folder / "run", waits) for _ in "ab"]
        counts.done["pairs of writers on one folder"] += 1
        for said in map(_ended, pair):
            counts.held["writers refused by a sentence"] += said.startswith("OptionError")
            right = said.startswith("done" if waits else ("done", "OptionError"))
            counts.check(right, "never two in one folder", f"a second writer: {said}"[:200])


def disk(folder: Path, every: int, mounted: bool) -> Counts:
    """Full and read-only disks: our error says so, what was committed is whole, and the run goes on afterwards.

    every: the first, and each `every`-th write after it, finds the disk full. mounted: also fill a disk of one megabyte.
    """
    counts = Counts()
    _no_space(folder / "sync", every, counts)
    _too_large(folder / "large", counts)
    _read_only(folder / "read-only", counts)
    if mounted:
        _full_disk(folder / "full", counts)
    return counts


def _no_space(folder: Path, every: int, counts: Counts) -> None:
    """The disk is full at the first, second, third... moment that something is written through to it, until a run ends."""
    config = replace(RUN, steps=6)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for number in itertools.count(1, every):
        outcomes = itertools.chain([None] * (number - 1), [full], itertools.repeat(None))
        try:
            with mock.patch.object(os, "fsync", side_effect=outcomes):
                fit(tiny_model(), Majority(), config, folder / str(number), progress=False)
            return
        except PathError as error:
            said = "the disk is full" in str(error)
            counts.check(said, "called a full disk", f"called otherwise: {error}")
        except Exception as error:
            counts.wrong[f"raw error: {type(error).__name__}"] += 1
        counts.done["disks that were full at some write"] += 1
        _goes_on(folder / str(number), counts)


def _goes_on(run_dir: Path, counts: Counts) -> None:
    try:
        for path in checkpoint.committed(run_dir / "checkpoints"):
            checkpoint.load(path)
        counts.held["what was committed is whole"] += 1
    except RegardError:
        counts.wrong["a committed checkpoint is damaged"] += 1


def _child(target: Callable[..., None], *arguments: Any) -> str:
    """How the call ended in a process of its own, which may change its limits and rights."""
    with ProcessPoolExecutor(1, mp_context=FORK) as pool:
        return _ended(pool.submit(target, *arguments))


def _tried(counts: Counts, what: str, wanted: str, *call: Any) -> None:
    """wanted: how it must end, a regular expression."""
    said = _child(*call)
    counts.done[what] += 1
    counts.check(bool(re.match(wanted, said)), "ended as it must", f"{what}: {said}"[:200])


def _ended(call: Future[None]) -> str:
    error = call.exception()
    if error is None:
        return "done"
    return f"{'raw ' * (not isinstance(error, RegardError))}{type(error).__name__}: {error}"


def _limited(target: Callable[..., None], *arguments: Any) -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))
    target(*arguments)


def _fill(path: Path) -> None:
    with Ledger(path) as ledger:
        start = len(ledger.rows())
        for number in range(start, start + 100):
            ledger.put(str(number), absent_row("decode", "long " * 2000))


def _big(folder: Path) -> None:
    made = Checkpoint({"w": torch.zeros(2**16)}, {}, {"step": 1})
    checkpoint.save(checkpoint.path_of(folder, 1), made)


def _too_large(folder: Path, counts: Counts) -> None:
    """Files may not grow beyond a limit: what a full quota looks like to SQLite and safetensors."""
    folder.mkdir(parents=True)
    for name, target, path in (("ledger", _fill, folder / "l.sqlite"), ("save", _big, folder)):
        _tried(counts, f"{name}: a file at its limit", "PathError", _limited, target, path)
    with Ledger(folder / "l.sqlite") as ledger:
        counts.check(len(ledger.rows()) >= 0, "the ledger is whole", "the ledger is damaged")
    counts.check(not checkpoint.committed(folder), "nothing half saved", "half a checkpoint")


def _as_nobody(target: Callable[..., None], *arguments: Any) -> None:
    if os.geteuid() == 0:
        os.seteuid(NOBODY)
    target(*arguments)


def _count_rows(path: Path, rows: int) -> None:
    with Ledger(path) as ledger:
        if len(ledger.rows()) != rows:
            raise AssertionError("rows are missing")


def _read_only(folder: Path, counts: Counts) -> None:
    """Folders and files that may be read and not written, by a user without special rights."""
    folder.mkdir(parents=True)
    _fill(folder / "l.sqlite")
    _train(folder / "run", 0)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    for name, target, arguments, wanted in (
        ("train", _train, (folder / "run", 0), "PathError"),
        ("train in a new folder", _train, (folder / "new", 0), "PathError"),
        ("ledger", _fill, (folder / "l.sqlite",), "PathError"),
        ("a new ledger", _fill, (folder / "m.sqlite",), "PathError"),
        ("reading the ledger", _count_rows, (folder / "l.sqlite", 100), "done"),
    ):
        _tried(counts, f"read-only: {name}", wanted, _as_nobody, target, *arguments)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _full_disk(folder: Path, counts: Counts) -> None:
    """A disk of one megabyte that really fills up, where this user may mount one."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        counts.done["full disks that this user may not mount"] += 1
        return
    try:
        ballast = folder / "ballast"
        for room in range(0, 400_000, 20_000):
            shutil.rmtree(folder / "run", ignore_errors=True)
            (folder / "l.sqlite").unlink(missing_ok=True)
            free = shutil.disk_usage(folder).free
            ballast.write_bytes(bytes(max(0, free - room)))
            wanted = "done|PathError: .*the disk is full"
            _tried(counts, "full disk: train", wanted, _train, folder / "run", 0)
            _tried(counts, "full disk: ledger", wanted, _fill, folder / "l.sqlite")
            ballast.unlink()
            _goes_on(folder / "run", counts)
            _tried(counts, "full disk: afterwards", "done", _train, folder / "run", 1)
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def calls(number: int) -> Counts:
    """Generated calls with a likely wrong argument: our error, or a result where the value was one that is taken."""
    found, counts = bad_calls(number), Counts()
    counts.done.update({f"bad calls, {subject}": n for subject, n in found.by_subject.items()})
    held = {"refused by name": "refused", "a value that is taken": "valid"}
    counts.held.update({what: found.outcomes[of] for what, of in held.items()})
    counts.wrong.update(one[:200] for one in found.findings)
    return counts


PARTS: dict[str, Callable[[Path, bool], Counts]] = {
    "kills": lambda folder, small: kills(folder, *((12, 4) if small else (200, 50))),
    "saves": lambda folder, small: saves(folder, 12 if small else 400),
    "flips": lambda folder, small: flips(folder, 60 if small else 1000),
    "mutants": lambda folder, small: mutants(folder, 300 if small else 10_000),
    "writers": lambda folder, small: writers(folder, *((60, 3, 6) if small else (1000, 20, 60))),
    "disk": lambda folder, small: disk(folder, *((9, False) if small else (1, True))),
    "calls": lambda folder, small: calls(500 if small else 10_000),
}


def run(part: str, *, small: bool = False) -> dict[str, Any]:
    """The counts of one part as JSON values."""
    began = time.perf_counter()
    os.umask(0o022)  # a user without rights tries some of it
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        os.chmod(folder, 0o755)
        counts = PARTS[part](Path(folder) / part, small)
    found = {name: dict(sorted(values.items())) for name, values in vars(counts).items()}
    return found | {"seconds": round(time.perf_counter() - began, 1)} | origin()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true", help="the reduced form of the tests")
    parser.add_argument("--to", type=Path, default=Path("docs/faults.json"))
    options = parser.parse_args()
    torch.set_num_threads(1)
    failed = False
    for part in options.part:
        found = run(part, small=options.small)
        print(f"{part}: {found['seconds']} s")
        for name in ("done", "held", "wrong", "worst"):
            for what, count in found[name].items():
                print(f"  {name:5}  {count:>8,}  {what}")
        failed |= bool(found["wrong"])
        if not options.small:
            known = json.loads(options.to.read_text()) if options.to.exists() else {}
            with files.whole(options.to) as partial:
                partial.write_text(json.dumps(known | {part: found}, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
