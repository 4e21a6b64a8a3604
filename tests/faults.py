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
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from regard import hf
from regard.core import OptionError, PathError, RegardError, files
from regard.explore import Page
from regard.lab.data.owners import owned
from regard.lab.experiment.ledger import Ledger, trial_key
from regard.lab.experiment.row import Row
from regard.lab.experiment.workers import Claims, Job, share
from regard.lab.train import checkpoint, fit
from regard.lab.train.checkpoint import Checkpoint
from tests.bad_calls import bad_calls, small_llama
from tests.conftest import origin
from tests.formats import SAMPLES, Sample, absent_row, equal
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
    _kills_in_saving(folder / "saving", saving, counts)
    _kills_in_training(folder / "training", training, counts)
    return counts


def _tensors(step: int) -> dict[str, torch.Tensor]:
    return {"w": torch.full((256, 1024), float(step)), "b": torch.arange(7) + step}


def _save_on(root: Path, first: int, said: Any) -> None:
    for step in range(first, 10**6):
        made = Checkpoint(_tensors(step), {}, {"step": step})
        checkpoint.save(checkpoint.path_of(root, step), made)
        said.send(step)
        checkpoint.prune(root, 2, checkpoint.path_of(root, first))


def _killed(target: Callable[..., None], *arguments: Any, moments: random.Random) -> int:
    """The last number that `target` said was saved, before its process was killed at a random moment behind its first."""
    ours, theirs = FORK.Pipe(duplex=False)
    child = FORK.Process(target=target, args=(*arguments, theirs))
    child.start()
    theirs.close()
    last = ours.recv()
    time.sleep(moments.uniform(0, 0.03))
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with contextlib.suppress(EOFError):
        while True:
            last = max(last, ours.recv())
    ours.close()
    return last


def _kills_in_saving(root: Path, number: int, counts: Counts) -> None:
    """A process saves without end and is killed at a random moment: what it said was saved is there, all of it."""
    moments, last = random.Random(0), 0
    for _ in range(number):
        last = _killed(_save_on, root, last + 1, moments=moments)
        counts.done["kills in saving"] += 1
        if any(root.glob(f"*{files.PARTIAL}")):
            counts.done["kills that left something half written"] += 1
        checkpoint.clean(root)
        found = checkpoint.committed(root)
        is_there = checkpoint.path_of(root, last) in found
        counts.check(is_there, "the newest checkpoint is there", "a checkpoint is gone")
        for path in found:
            counts.check(_is_whole(path), "checkpoints are whole", "a checkpoint is damaged")
        last = int(found[-1].name.removeprefix("step-"))
        for path in found[:-1]:
            shutil.rmtree(path)


def _is_whole(path: Path) -> bool:
    try:
        stored = checkpoint.load(path)
    except RegardError:
        return False
    return equal(stored.model, _tensors(stored.state["step"]))


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


def saves(folder: Path, number: int) -> Counts:
    """A process saves without end, under one name or under ever new ones, and is killed: what has a name is one version, all of it."""
    counts, moments = Counts(), random.Random(5)
    ways = [*itertools.product({"page": Pages(), "folder": Folders()}.items(), (False, True))]
    for index in range(number):
        (name, saver), over = ways[index % len(ways)]
        root = folder / str(index)
        root.mkdir(parents=True)
        last = _killed(_save_again, saver, root, over, moments=moments)
        counts.done[f"kills in saving a {name}, {'over' if over else 'beside'} the last"] += 1
        for path in root.rglob("*"):
            counts.done["partial files that were left"] += path.name.endswith(files.PARTIAL)
        named = [path for path in root.iterdir() if not path.name.endswith(files.PARTIAL)]
        kept = {"one": {last, last + 1}} if over else {str(n): {n} for n in range(1, last + 2)}
        is_there = (root / ("one" if over else str(last))).exists()
        counts.check(is_there, f"the newest {name} is there", f"a {name} is gone")
        for path in named:
            try:
                whole = saver.read(path) in kept[path.name]
                counts.check(whole, f"a {name} is whole", f"a {name} is of two versions")
            except Exception as error:
                counts.wrong[f"a {name} cannot be read: {type(error).__name__}"] += 1
        shutil.rmtree(root)
    return counts


def _save_again(saver: Pages | Folders, root: Path, over: bool, said: Any) -> None:
    for number in itertools.count(1):
        saver.save(root / ("one" if over else str(number)), number)
        said.send(number)


def flips(folder: Path, number: int) -> Counts:
    """One byte of a stored file is changed: it is refused, or what is read is the same to the last bit."""
    counts, draw = Counts(), random.Random(2)
    for index in range(number):
        sample = SAMPLES[KEPT[index % len(KEPT)]]
        root, intact = _written(sample, folder)
        path = draw.choice(sorted(intact))
        changed = bytearray(intact[path])
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
        _restored(root, intact)
    return counts


KEPT = ("checkpoint", "ledger", "generated data")


def _written(sample: Sample, folder: Path) -> tuple[Path, dict[Path, bytes]]:
    """The sample's folder, and the content of each of its files; written when it is first used."""
    root = folder / sample.name
    if not root.exists():
        root.mkdir(parents=True)
        sample.write(root)
    paths = (path for path in root.rglob("*") if path.is_file() and path.name[0] != ".")
    return root, {path: path.read_bytes() for path in paths}


def _restored(root: Path, intact: dict[Path, bytes]) -> None:
    for path in list(root.rglob("*")):
        if path.is_file() and path not in intact and path.name[0] != ".":
            path.unlink()  # a journal, say
    for path, content in intact.items():
        path.write_bytes(content)


def mutants(folder: Path, number: int) -> Counts:
    """Files of every format, damaged in many ways: they are read, or refused by our error, in bounded time and memory."""
    counts, draw = Counts(), random.Random(3)
    samples = list(SAMPLES.values())
    for sample in samples:
        root, _ = _written(sample, folder)
        sample.read(root)  # what it imports is not counted
    for index in range(number):
        sample = samples[index % len(samples)]
        root, intact = _written(sample, folder)
        sample.damage(root, draw)
        sizes = (path.stat().st_size for path in intact if path.exists())
        _read_mutant(sample, root, sum(sizes), counts)
        _restored(root, intact)
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


def _enter(path: Path, wait: bool, inside: Any, most: Any, refused: Any) -> None:
    try:
        with owned(path, wait=wait):
            with inside.get_lock():
                inside.value += 1
                most.value = max(most.value, inside.value)
            time.sleep(0.05)
            with inside.get_lock():
                inside.value -= 1
    except OptionError:
        with refused.get_lock():
            refused.value += 1


def _one_folder(folder: Path, rounds: int, counts: Counts) -> None:
    inside, most, refused = (FORK.Value("i", 0) for _ in "abc")
    for number in range(rounds):
        waits = number % 2 == 0
        given = (folder / "run", waits, inside, most, refused)
        pair = [FORK.Process(target=_enter, args=given) for _ in "ab"]
        for process in pair:
            process.start()
        for process in pair:
            process.join(120)
            if process.exitcode != 0:
                counts.wrong["a second writer failed otherwise than by a sentence"] += 1
        counts.done["pairs of writers on one folder"] += 1
    counts.held["writers refused by a sentence"] += refused.value
    counts.check(most.value == 1, "never two in one folder", "two wrote in one folder")


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
    for number in itertools.count(1, every):
        calls, real = itertools.count(1), os.fsync

        def fsync(handle: int, calls=calls, number=number, real=real) -> None:
            if next(calls) == number:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            real(handle)

        try:
            with mock.patch.object(os, "fsync", fsync):
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
        error = pool.submit(target, *arguments).exception()
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
        said = _child(_limited, target, path)
        counts.done[f"{name}: a file at its limit"] += 1
        counts.check(said.startswith("PathError"), "refused by our error", f"{name}: {said}"[:200])
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
    _open_way(folder)
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
        said = _child(_as_nobody, target, *arguments)
        counts.done[f"read-only: {name}"] += 1
        counts.check(said.startswith(wanted), "as it must be", f"{name}: {said}"[:200])
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)


def _open_way(folder: Path) -> None:
    """Everybody may pass through the temporary folders above."""
    folder.mkdir(parents=True)
    for parent in (folder, *folder.parents):
        with contextlib.suppress(PermissionError):
            if parent.stat().st_uid == os.getuid() and parent.is_relative_to(tempfile.gettempdir()):
                parent.chmod(parent.stat().st_mode | 0o555)


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
            for name, target, *arguments in (
                ("train", _train, folder / "run", 0),
                ("ledger", _fill, folder / "l.sqlite"),
            ):
                said = _child(target, *arguments)
                counts.done[f"full disk: {name}"] += 1
                right = said == "done" or "the disk is full" in said
                counts.check(right, "called a full disk", f"{name}: {said}"[:200])
            ballast.unlink()
            _goes_on(folder / "run", counts)
            said = _child(_train, folder / "run", 1)
            counts.check(said == "done", "went on with free space", f"afterwards: {said}"[:200])
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def calls(number: int) -> Counts:
    """Generated calls with a likely wrong argument: our error, or a result where the value was one that is taken."""
    found, counts = bad_calls(number), Counts()
    counts.done.update({f"bad calls, {subject}": n for subject, n in found.by_subject.items()})
    held = {"refused by name": "refused", "a value that is taken": "valid"}
    counts.held.update({what: found.outcomes[of] for what, of in held.items()})
    counts.wrong.update(f"{one.call}: {one.what}"[:200] for one in found.findings)
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
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
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
