"""The commands, and how a line is read and what is wrong with it told; each command imports what it needs."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

from tyro.conf import FlagCreatePairsOff, Positional, arg

from regard.cli.arena import Arena
from regard.cli.arguments import parse
from regard.cli.bench import LEDGER, PAGE, Bench
from regard.cli.convert import Convert
from regard.cli.data import DataCommands
from regard.cli.explore import Explore
from regard.cli.laws import Laws
from regard.cli.printing import console, print_details, print_json, print_table
from regard.cli.recommend import Recommend
from regard.core import OptionError, RegardError, UnknownNameError
from regard.core.errors import visible_lines
from regard.core.packages import lacking_extra

Json = Annotated[FlagCreatePairsOff[bool], arg(help="print data instead of a table")]


@dataclass(frozen=True)
class Ls:
    """List what there is."""

    kind: Positional[str | None] = None
    """mixers, pools, scores, models, positions, feed_forwards, tasks, suites, findings, recipes or sources; all by default"""
    json: Json = False

    def run(self) -> int:
        from regard.cli.describe import SOURCES, kinds, overview

        found = {kind: overview(kind) for kind in ([self.kind] if self.kind else kinds())}
        if self.json:
            print_json(found[self.kind] if self.kind else found)
        else:
            for kind, rows in found.items():
                print_table(rows, title=kind)
            if not self.kind and (absent := SOURCES.keys() - found):
                print(f"{', '.join(sorted(absent))}: pip install 'regard[lab]'")
        return 0


@dataclass(frozen=True)
class Show:
    """Everything about one name: equation, paper, what it can do and why not, options, cost."""

    name: Positional[str]
    """of a catalogue, or module:Class of your own"""
    json: Json = False

    def run(self) -> int:
        from regard.cli.describe import about, details
        from regard.cli.names import own

        found = [about(*own(self.name))] if ":" in self.name else details(self.name)
        if self.json:
            print_json(found)
        else:
            for facts in found:
                print_details(facts)
        return 0


@dataclass(frozen=True)
class Train:
    """Train a recipe: `regard train RECIPE --help` lists its fields, `regard ls recipes` the recipes.

    Your own is a function that returns a Run, with any task and model in it: `regard train module:function`.
    """

    recipe: Positional[str]
    """a name of `regard ls recipes`, or module:function of your own"""


@dataclass(frozen=True)
class Report:
    """Draw the ledger: a table here, and one page that opens from disk."""

    ledger: Path = LEDGER
    """or a page (.html), or the JSON saved from one (.json)"""
    page: Path = PAGE
    picture: Path | None = None
    """also draw quality against speed against memory here, as .png or .svg"""
    finding: str | None = None
    """in the place of the table and page: what came out of this finding, as a page in --folder"""
    folder: Path = Path("runs/findings")
    json: Json = False

    def run(self) -> int:
        if self.finding is not None:
            return self._finding(self.finding)
        from regard.lab.arena.report import picture, plain, read_rows, terminal, write_page
        from regard.lab.data.files import check_writable

        for path in filter(None, (self.page, self.picture)):
            check_writable(path)
        if not self.ledger.exists():
            raise OptionError(
                f"there is no ledger at {self.ledger}. `regard arena quick` makes one."
            )
        rows = read_rows(self.ledger)
        page = write_page(rows, self.page).resolve()
        drawn = picture(rows, self.picture) if self.picture else None
        if self.json:
            print_json(plain(rows) | {"page": str(page), "picture": drawn and str(drawn)})
        else:
            console().print(terminal(rows))
            print(f"\nThe page: {page}")
        return 0

    def _finding(self, name: str) -> int:
        from regard.cli.names import entry
        from regard.lab.arena.ledger import Ledger
        from regard.lab.findings.page import stored, summary, write

        finding = entry("findings", name)
        rows = []
        if self.ledger.exists():
            with Ledger(self.ledger) as ledger:
                rows = [row for row in ledger.findings() if row.finding == finding.name]
        if not rows:
            raise OptionError(
                f"{self.ledger} has nothing of {finding.name} yet. `regard arena {name}` runs it."
            )
        page = write(finding, rows, self.folder).resolve()
        results = stored(finding, page.with_suffix(".json"))
        found = summary(results)
        if self.json:
            about = {"finding": finding.name, "claims": found, "old": results.old}
            print_json(about | {"page": str(page)})
        else:
            print_table(found, title=finding.name)
            if results.old:
                told = ", ".join(f"{count} of {name}" for name, count in results.old.items())
                print(visible_lines(f"Old rows left out: {told}."))
            print(f"\nThe page: {page}")
        return 0


@dataclass(frozen=True)
class Merge:
    """Put the rows of other ledgers into one. A trial that it has already keeps its result."""

    into: Positional[Path]
    others: Positional[tuple[Path, ...]]
    json: Json = False

    def run(self) -> int:
        from regard.lab.arena.ledger import Ledger

        if not self.others:
            raise OptionError(f"merge: name the ledgers whose rows {self.into} takes, after it")
        for path in self.others:
            if not path.exists():
                raise OptionError(f"there is no ledger at {path}")
        found = []
        with Ledger(self.into) as ledger:
            for path in self.others:
                with Ledger(path) as other:
                    found.append({"ledger": str(path), "new rows": ledger.merge(other)})
        if self.json:
            print_json({"into": str(self.into), "merged": found})
        else:
            print_table(found)
        return 0


@dataclass(frozen=True)
class Doctor:
    """This machine: versions, threads, devices, settings, and what is missing."""

    json: Json = False

    def run(self) -> int:
        from regard.cli.doctor import examine, missing

        rows = examine()
        if self.json:
            print_json(rows)
        else:
            print_table(rows)
        return 1 if missing(rows) else 0


GOES_ON = {"train", "arena", "data", "convert"}
"""Commands that keep what is finished, so that the same command goes on after an interruption."""
CLASSES: dict[str, Callable[..., Any]] = {
    "ls": Ls,
    "show": Show,
    "bench": Bench,
    "train": Train,
    "arena": Arena,
    "report": Report,
    "merge": Merge,
    "recommend": Recommend,
    "explore": Explore,
    "convert": Convert,
    "data": DataCommands,
    "laws": Laws,
    "doctor": Doctor,
}


def main(argv: Sequence[str]) -> int:
    """Exit code: 0 done, 1 something is missing or broken, 2 the request cannot be met (the reason is on stderr)."""
    args = list(argv)
    try:
        code = _run(args)
        sys.stdout.flush()  # a full disk is found here rather than at the end of the process
        return code
    except RegardError as error:
        return _refused(str(error))
    except ModuleNotFoundError as error:
        missing = lacking_extra(error)
        if missing is None:
            raise
        print(f"regard: {args[0]} needs {missing}", file=sys.stderr)
        return 1
    except SystemExit as stop:  # tyro has printed the help, or what is wrong
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt:
        again = f". This goes on: {shlex.join(['regard', *args])}" if args[0] in GOES_ON else ""
        print(f"regard: interrupted{again}", file=sys.stderr)
        return 130
    except OSError as error:
        return failed(error)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        said = str(error).partition("\n")[0]
        return _refused(f"out of memory ({said}). Choose a smaller model, batch or length.")


def _run(args: list[str]) -> int:
    name, *rest = args
    if name not in CLASSES:
        raise UnknownNameError("command", name, CLASSES)
    if name == "train" and rest and not rest[0].startswith("-"):
        return _train(*rest)
    return parse(CLASSES[name], f"regard {name}", rest).run()


def failed(error: OSError) -> int:
    """Exit code, once the reason is on stderr."""
    if isinstance(error, BrokenPipeError):  # `regard ls | head`
        _close_stdout()
        return 0
    return _refused(_path_sentence(error))


def _refused(sentence: str) -> int:
    print(f"regard: {visible_lines(sentence)}", file=sys.stderr)
    return 2


def _path_sentence(error: OSError) -> str:
    from regard.lab.data.files import path_error

    if error.filename is None:  # what is printed goes to a file of a full disk
        _close_stdout()
    path = "the output" if error.filename is None else os.fsdecode(error.filename)
    return str(path_error(path, error.errno, str(error), "used"))


def _close_stdout() -> None:
    """Drops unwritten output, so that the end of the process does not try again."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _is_out_of_memory(error: BaseException) -> bool:
    known = ("can't allocate memory", "not enough memory", "out of memory")
    return isinstance(error, MemoryError) or any(words in str(error) for words in known)


def _train(name: str, *args: str) -> int:
    from regard.cli.names import entry
    from regard.lab import recipes
    from regard.lab.data.files import check_writable
    from regard.lab.recipes.ending import ending
    from regard.lab.train.launched import is_main, said_once

    recipe = entry("recipes", name)()
    if not isinstance(recipe, recipes.Run):
        raise OptionError(f"{name} returned {type(recipe).__name__}: a recipe returns a Run")
    home = Path("runs/train") / name.replace(":", ".")

    def given(
        run: Annotated[recipes.Run, arg(name="")] = recipe,
        folder: Path = home,
        wait: Annotated[
            FlagCreatePairsOff[bool], arg(help="wait for a process that trains in the folder")
        ] = False,
        json: Json = False,
    ) -> tuple[recipes.Run, Path, bool, bool]:
        return run, folder, wait, json

    run, folder, wait, json = parse(given, f"regard train {name}", args)
    check_writable(folder, folder=True)
    splits = run.task.load()
    try:
        model, result = recipes.train(run, folder, splits=splits, wait=wait, progress=not json)
    except RegardError as error:
        said_once(error, _refused)
        return 2
    if not is_main():
        return 0
    series = {"curve": result.curve, "losses": result.losses}
    found = {field: value for field, value in asdict(result).items() if field not in series}
    if json:
        print_json(found | series | {"folder": str(folder)})
    else:
        print_table(
            {"what": key, "value": value} for key, value in (found | {"folder": folder}).items()
        )
        print(*ending(run, folder, model, result, splits), sep="\n")
    return 0
