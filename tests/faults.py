"""Faults on purpose, with counts: kills in training and in saving, flipped bytes, damaged files, several writers, full and read-only disks, bad calls.

    python -m tests.faults                      # all parts, about five minutes; the counts go to docs/faults.json
    python -m tests.faults --part flips disk    # some of them; the counts of the others stay

Each part is a function that fills its counts; a count of what must not happen is in `wrong`, and a part with one that is not
zero makes the exit code 1. Everything is made from seeds, but the moment of a kill.
"""

import argparse
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
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from typing import Any
from unittest import mock

import torch

from regard import hf
from regard.core import RegardError, files
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

COUNTS = Path("docs/faults.json")
RUN = replace(CONFIG, eval_every=5, checkpoint_every=2)
FORK = multiprocessing.get_context("fork")
KEPT = ("checkpoint", "ledger", "generated data")
llama = cache(small_llama)
SECONDS = 1.0  # that reading a damaged file may take
FIXED = 2**21  # bytes beside twice the size: error texts, and the blocks that decoders work in
NOBODY = 65534
OURS = "done|[A-Z]"
"""Without an error, or with one of this library."""


@dataclass
class Counts:
    """done: what was tried. held: what came out as it must. wrong: what must never happen."""

    done: Counter[str] = field(default_factory=Counter)
    held: Counter[str] = field(default_factory=Counter)
    wrong: Counter[str] = field(default_factory=Counter)
    worst: dict[str, float] = field(default_factory=dict)

    def check(self, what: str, holds: object, told: str = "") -> None:
        if holds:
            self.held[what] += 1
        else:
            self.wrong[f"not so: {what}. {told}"[:200]] += 1

    def ends(self, what: str, wanted: str, ended: str) -> None:
        """wanted: how a call must have ended, a regular expression."""
        self.check(what, re.match(wanted, ended), ended)


def said(call: Callable[..., object], *arguments: Any) -> str:
    """How the call ended: done, or an error's class and text; `raw` comes before one that is not ours."""
    try:
        call(*arguments)
    except Exception as error:
        raw = "" if isinstance(error, RegardError) else "raw "
        return f"{raw}{type(error).__name__}: {error}"
    return "done"


def started(target: Callable[..., None], *arguments: Any) -> Any:
    child = FORK.Process(target=target, args=arguments)
    child.start()
    return child


def kills(counts: Counts, folder: Path, saving: int, training: int) -> None:
    _kills_in_saving(counts, folder / "saving", saving, [("checkpoint", False)])
    _kills_in_training(counts, folder / "training", training)


def _save_checkpoint(path: Path, number: int) -> None:
    """The first and the newest two stay."""
    weights = {"w": torch.full((256, 1024), float(number))}
    checkpoint.save(path, Checkpoint(weights, {}, {"step": number}))
    checkpoint.prune(path.parent, 2, checkpoint.path_of(path.parent, 1))


def _read_checkpoint(path: Path) -> set[float]:
    stored = checkpoint.load(path)
    return {stored.state["step"], *stored.model["w"].flatten().tolist()}


def _save_folder(path: Path, number: int) -> None:
    with torch.no_grad():
        for weight in llama().parameters():
            weight.fill_(number)
    hf.save(llama(), path)


SAVERS: dict[str, tuple[Callable[[Path, int], None], Callable[[Path], set[float]]]] = {
    "checkpoint": (_save_checkpoint, _read_checkpoint),
    "page": (
        lambda path, number: Page(html=f"<p>{number}" * 20_000).save(path),
        lambda path: set(map(float, path.read_text().split("<p>")[1:])),
    ),
    "folder": (
        _save_folder,
        lambda path: set(torch.cat([w.flatten() for w in hf.load(path).parameters()]).tolist()),
    ),
}
"""How each is written, so that all of it is one number, and which numbers are read from it."""


def _save_again(name: str, root: Path, over: bool) -> None:
    for number in itertools.count(1):
        SAVERS[name][0](checkpoint.path_of(root, 1 if over else number), number)
        with root.with_suffix(".log").open("a") as log:
            log.write(f"{number}\n")


def _last_saved(name: str, root: Path, over: bool, moments: random.Random) -> int:
    """The last number that was said to be saved, before that process was killed at a random moment."""
    log, wanted = root.with_suffix(".log"), moments.randint(1, 5)
    log.write_text("")
    child = started(_save_again, name, root, over)
    while child.exitcode is None and len(log.read_text().split()) < wanted:
        child.join(0.002)
    child.join(moments.uniform(0, 0.03))
    child.kill()
    child.join()
    return int(log.read_text().split()[-1])


def _kills_in_saving(counts: Counts, root: Path, tries: int, ways: list[tuple[str, bool]]) -> None:
    """A process saves without end, and is killed: what has a name is one version, all of it.

    ways: what is saved, and whether under one name or under ever new ones.
    """
    moments = random.Random(0)
    for name, over in itertools.islice(itertools.cycle(ways), tries):
        root.mkdir(parents=True)
        last = _last_saved(name, root, over, moments)
        counts.done[f"kills in saving a {name}, {'over' if over else 'beside'} the last"] += 1
        for path in root.rglob("*"):
            counts.done["partial files that were left"] += path.name.endswith(files.PARTIAL)
        newest = checkpoint.path_of(root, 1 if over else last)
        counts.check(f"the newest {name} is there", newest.exists())
        for path in checkpoint.committed(root):
            numbers = (last, last + 1) if over else (int(path.name[-8:]),)
            counts.ends(f"a {name} is whole", "done", said(_read_number, name, path, numbers))
        shutil.rmtree(root)


def _read_number(name: str, path: Path, numbers: Sequence[int]) -> None:
    (found,) = SAVERS[name][1](path)
    assert found in numbers, f"it has {found}"


def _train(run_dir: Path, seed: int) -> None:
    fit(tiny_model(seed), Majority(), RUN, run_dir, progress=False)


def _kills_in_training(counts: Counts, root: Path, number: int) -> None:
    """A run is killed again and again until it ends: weights, optimizer and generators are those of a run left alone."""
    _train(root / "alone", 0)
    expected, moments = _end(root / "alone"), random.Random(1)
    for run in itertools.count():
        run_dir = root / f"run-{run}"
        child = started(_train, run_dir, 0)
        while counts.done["kills in training"] < number:
            _wait_for_progress(child, run_dir, moments)
            if child.exitcode is not None:
                break
            child.kill()
            child.join()
            counts.done["kills in training"] += 1
            child = started(_train, run_dir, 0)
        child.join()
        counts.done["runs that were killed until they ended"] += 1
        same = child.exitcode == 0 and equal(_end(run_dir), expected)
        counts.check("runs ended as one left alone", same)
        if counts.done["kills in training"] >= number:
            return


def _wait_for_progress(child: Any, run_dir: Path, moments: random.Random) -> None:
    """Until a few checkpoints more are there (none in a fifth of the cases: a kill at the start), and a moment longer."""

    def newest() -> Path | None:
        return max(checkpoint.committed(run_dir / "checkpoints"), default=None)

    for _ in range(moments.choice((0, 1, 1, 2, 3))):
        before = newest()
        while child.exitcode is None and newest() == before:
            child.join(0.002)
    child.join(moments.uniform(0, 0.08))


def _end(run_dir: Path) -> Any:
    """Weights, optimizer and generators of the last checkpoint."""
    last = checkpoint.load(checkpoint.committed(run_dir / "checkpoints")[-1])
    return last.model, last.optimizer, last.state["random"]


def flips(counts: Counts, folder: Path, number: int) -> None:
    """One byte of a stored file is changed: it is refused, or what is read is the same to the last bit."""
    draw = random.Random(2)
    for index in range(number):
        sample = SAMPLES[KEPT[index % len(KEPT)]]
        root = copied(sample, folder)
        path = draw.choice(plain_files(root))
        changed = bytearray(path.read_bytes())
        changed[draw.randrange(len(changed))] ^= 1 << draw.randrange(8)
        path.write_bytes(changed)
        counts.done[f"flips in {path.name}"] += 1
        counts.ends("a flip is found or changes nothing", OURS, said(_unchanged, sample, root))


def _unchanged(sample: Sample, root: Path) -> None:
    intact = sample.read(root.with_name(sample.name))
    assert equal(sample.read(root), intact), "a flip went unnoticed"


def copied(sample: Sample, folder: Path) -> Path:
    """A new copy of the sample's folder, which is written when it is first used."""
    intact, copy = folder / sample.name, folder / "copy"
    if not intact.exists():
        intact.mkdir(parents=True)
        sample.write(intact)
    shutil.rmtree(copy, ignore_errors=True)
    return shutil.copytree(intact, copy)


def mutants(counts: Counts, folder: Path, number: int) -> None:
    """Files of every format, damaged in many ways: they are read, or refused by our error, in bounded time and memory."""
    draw = random.Random(3)
    samples = list(SAMPLES.values())
    for sample in samples:
        sample.read(copied(sample, folder))  # what it imports is not counted
    for index in range(number):
        sample = samples[index % len(samples)]
        root = copied(sample, folder)
        sample.damage(root, draw)
        size = sum(path.stat().st_size for path in plain_files(root))
        _read_mutant(counts, sample, root, size)


def _read_mutant(counts: Counts, sample: Sample, root: Path, size: int) -> None:
    name, most = sample.name, 2 * size + FIXED
    counts.done[f"mutants of a {name}"] += 1
    ended, seconds, peak = _measured(sample, root)
    if seconds > SECONDS or peak > most:
        # The interpreter's own tables grow now and then.
        ended, *again = _measured(sample, root)
        seconds, peak = min(seconds, again[0]), min(peak, again[1])
    way = "read" if ended == "done" else "refused"
    counts.check(way, re.match(OURS, ended), f"{name}, {ended}")
    counts.check(f"in {SECONDS} s", seconds <= SECONDS, name)
    counts.check(f"in twice the size and {FIXED} bytes", peak <= most, name)
    for what, value in (("seconds", seconds), ("bytes above twice the size", peak - 2.0 * size)):
        what = f"{name}: {what}"
        counts.worst[what] = max(round(value, 3), counts.worst.get(what, 0.0))


def _measured(sample: Sample, root: Path) -> tuple[str, float, int]:
    """How reading it ended; seconds of the processor; bytes at the highest point."""
    tracemalloc.start()
    began = time.process_time()
    ended = said(sample.read, root)
    seconds, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return ended, seconds, peak


def writers(counts: Counts, folder: Path, trials: int, killed: int, rounds: int) -> None:
    """Two workers sweep one ledger and are killed again and again; two processes want one run folder."""
    folder.mkdir(parents=True, exist_ok=True)
    _sweep(counts, folder / "ledger.sqlite", trials, killed)
    for number in range(rounds):
        waits = number % 2 == 0
        with ProcessPoolExecutor(2, mp_context=FORK) as pool:
            pair = [pool.submit(said, _enter, folder / "run", waits) for _ in "ab"]
        counts.done["pairs of writers on one folder"] += 1
        for future in pair:
            wanted = "done" if waits else "done|OptionError"
            counts.ends("never two in one folder", wanted, future.result())


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


def _sweep(counts: Counts, path: Path, trials: int, killed: int) -> None:
    log, moments = path.with_suffix(".log"), random.Random(4)
    log.touch()
    workers = [started(_toy, path, trials, log) for _ in range(2)]
    pause = 0.006 * trials / (killed + 1)
    while counts.done["kills of a worker"] < killed:
        time.sleep(moments.uniform(0.5 * pause, pause))
        victim = moments.randrange(2)
        if workers[victim].exitcode is not None:
            break
        workers[victim].kill()
        workers[victim].join()
        counts.done["kills of a worker"] += 1
        workers[victim] = started(_toy, path, trials, log)
    for worker in workers:
        worker.join(300)
        counts.check("workers ended", worker.exitcode == 0)
    with Ledger(path) as ledger:
        subjects = Counter(row.column for row in ledger.rows())
    counts.done["trials"] += trials
    for number in range(trials):
        counts.check("trials are in the ledger once", subjects[f"trial {number}"] == 1)
    finished = Counter(log.read_text().split())
    counts.check("no trial was finished twice", max(finished.values()) == 1)
    counts.held["trials finished by a worker that went on"] += len(finished)


def _enter(path: Path, wait: bool) -> None:
    inside = path.with_name("inside")
    with owned(path, wait=wait):
        inside.mkdir()  # an error where another is in
        time.sleep(0.05)
        inside.rmdir()


def disk(counts: Counts, folder: Path, every: int, mounted: bool) -> None:
    """Full and read-only disks: our error says so, what was committed is whole, and the run goes on afterwards.

    every: the first, and each `every`-th write after it, finds the disk full. mounted: also fill a disk of one megabyte.
    """
    _no_space(counts, folder / "sync", every)
    _too_large(counts, folder / "large")
    _read_only(counts, folder / "read-only")
    if mounted:
        _full_disk(counts, folder / "full")


def _no_space(counts: Counts, folder: Path, every: int) -> None:
    """The disk is full at the first, second, third... moment that something is written through to it, until a run ends."""
    config = replace(RUN, steps=6)
    full = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    for number in itertools.count(1, every):
        outcomes = itertools.chain([None] * (number - 1), [full], itertools.repeat(None))
        run_dir = folder / str(number)
        with mock.patch.object(os, "fsync", side_effect=outcomes):
            ended = said(partial(fit, tiny_model(), Majority(), config, run_dir, progress=False))
        if ended == "done":
            return
        counts.done["disks that were full at some write"] += 1
        counts.ends("a full disk", "PathError: .*the disk is full", ended)
        _goes_on(counts, run_dir)


def _goes_on(counts: Counts, run_dir: Path) -> None:
    for path in checkpoint.committed(run_dir / "checkpoints"):
        counts.ends("what was committed is whole", "done", said(checkpoint.load, path))


def _tried(counts: Counts, what: str, wanted: str, *call: Any, first: Any = None) -> None:
    """In a process of its own. first: changes its limits or rights."""
    counts.done[what] += 1
    with ProcessPoolExecutor(1, mp_context=FORK, initializer=first) as pool:
        counts.ends(what, wanted, pool.submit(said, *call).result())


def _limited() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, resource.RLIM_INFINITY))


def _fill(path: Path) -> None:
    with Ledger(path) as ledger:
        start = len(ledger.rows())
        for number in range(start, start + 100):
            ledger.put(str(number), absent_row("decode", "long " * 2000))


def _too_large(counts: Counts, folder: Path) -> None:
    """Files may not grow beyond a limit: what a full quota looks like to SQLite and safetensors."""
    folder.mkdir(parents=True)
    ledger, saved = folder / "l.sqlite", checkpoint.path_of(folder, 1)
    for name, *call in (("ledger", _fill, ledger), ("save", _save_checkpoint, saved, 1)):
        _tried(counts, f"{name}: a file at its limit", "PathError", *call, first=_limited)
    counts.ends("the ledger is whole", "done", said(_read_rows, ledger, 0))
    counts.check("nothing half saved", not checkpoint.committed(folder))


def _as_nobody() -> None:
    if os.geteuid() == 0:
        os.seteuid(NOBODY)


def _read_rows(path: Path, least: int) -> None:
    with Ledger(path) as ledger:
        assert len(ledger.rows()) >= least, "rows are missing"


def _read_only(counts: Counts, folder: Path) -> None:
    """Folders and files that may be read and not written, by a user without special rights."""
    folder.mkdir(parents=True)
    _fill(folder / "l.sqlite")
    _train(folder / "run", 0)
    for path in sorted(folder.rglob("*"), reverse=True):
        path.chmod(0o555 if path.is_dir() else 0o444)
    folder.chmod(0o555)
    for name, wanted, *call in (
        ("train", "PathError", _train, folder / "run", 0),
        ("train in a new folder", "PathError", _train, folder / "new", 0),
        ("ledger", "PathError: .*may only be read", _fill, folder / "l.sqlite"),
        ("a new ledger", "PathError", _fill, folder / "m.sqlite"),
        ("reading the ledger", "done", _read_rows, folder / "l.sqlite", 100),
    ):
        _tried(counts, f"read-only: {name}", wanted, *call, first=_as_nobody)


def _full_disk(counts: Counts, folder: Path) -> None:
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
            _goes_on(counts, folder / "run")
            _tried(counts, "full disk: afterwards", "done", _train, folder / "run", 1)
    finally:
        subprocess.run(["umount", str(folder)], check=False)


def calls(counts: Counts, folder: Path, number: int) -> None:
    """Generated calls with a likely wrong argument: our error, or a result where the value was one that is taken."""
    found = bad_calls(number)
    counts.done.update({f"bad calls, {subject}": n for subject, n in found.by_subject.items()})
    held = {"refused by name": "refused", "a value that is taken": "valid"}
    counts.held.update({what: found.outcomes[of] for what, of in held.items()})
    counts.wrong.update(one[:200] for one in found.findings)


OTHERS = [*itertools.product(("page", "folder"), (False, True))]
PARTS: dict[str, tuple[Callable[..., None], tuple[int, ...], tuple[int, ...]]] = {
    "kills": (kills, (12, 4), (200, 50)),
    "saves": (partial(_kills_in_saving, ways=OTHERS), (12,), (400,)),
    "flips": (flips, (60,), (1000,)),
    "mutants": (mutants, (300,), (10_000,)),
    "writers": (writers, (60, 3, 6), (1000, 20, 60)),
    "disk": (disk, (9, False), (1, True)),
    "calls": (calls, (500,), (10_000,)),
}
"""Part -> its function, and what it is given in the tests and as a whole."""


def run(part: str, *, small: bool = False) -> dict[str, Any]:
    """The counts of one part as JSON values."""
    function, reduced, whole = PARTS[part]
    counts, began = Counts(), time.perf_counter()
    os.umask(0o022)  # a user without rights tries some of it
    with tempfile.TemporaryDirectory(prefix="faults-") as folder:
        os.chmod(folder, 0o755)
        function(counts, Path(folder) / part, *(reduced if small else whole))
    found = {name: dict(sorted(values.items())) for name, values in vars(counts).items()}
    return found | {"seconds": round(time.perf_counter() - began, 1)} | origin()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--part", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--small", action="store_true", help="the reduced form of the tests")
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
            counts = json.loads(COUNTS.read_text()) | {part: found}
            COUNTS.write_text(json.dumps(counts, indent=1) + "\n")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
