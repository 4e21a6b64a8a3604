"""The commands, and how a line is read and what is wrong with it told; each command imports what it needs."""

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg
from tyro.extras import subcommand_cli_from_dict

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
    """mixers, pools, scores, models, positions, feed_forwards, tasks, questions or sources; all by default"""
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
    """Train a task's default model, the one of TASK/MODEL, or one entry of a question: QUESTION/ENTRY/COLUMN.

    `regard train NAME --help` lists all fields.

    Your own is a function that returns a Run, with any task and model in it: `regard train module:function`.
    """

    name: Positional[str]
    """a name of `regard ls tasks`, TASK/MODEL with one of `regard ls models`, QUESTION/ENTRY/COLUMN, or module:function of your own"""


@dataclass(frozen=True)
class Report:
    """Draw the ledger: a table here, and one page that opens from disk."""

    question: Positional[str | None] = None
    """this alone, by the name under which it was asked; all by default"""
    ledger: Path = LEDGER
    page: Path = PAGE
    picture: Path | None = None
    """also draw quality against speed against memory here, as .png or .svg"""
    document: Path | None = None
    """also write the question as a document (.md) here"""
    json: Json = False

    def run(self) -> int:
        from regard.lab.data.files import check_writable
        from regard.lab.report import document, picture, read_rows, terminal, told, write_page

        for path in filter(None, (self.page, self.picture, self.document)):
            check_writable(path)
        if not self.ledger.exists():
            raise OptionError(f"there is no ledger at {self.ledger}. `regard arena` makes one.")
        rows = read_rows(self.ledger)
        if self.question is not None:
            names = dict.fromkeys(row.question for row in rows if row.kind == "asked")
            if self.question not in names:
                raise UnknownNameError("asked question", self.question, list(names))
            rows = [row for row in rows if row.kind != "asked" or row.question == self.question]
        page = write_page(rows, self.page).resolve()
        drawn = picture(rows, self.picture) if self.picture else None
        written = document(rows, self.document) if self.document else None
        if self.json:
            paths = {
                "page": str(page),
                "picture": drawn and str(drawn),
                "document": written and str(written),
            }
            print_json(told(rows) | paths)
        else:
            console().print(terminal(rows))
            print(f"\nThe page: {page}")
        return 0


@dataclass(frozen=True)
class Merge:
    """Put the rows of other ledgers into one. A trial that it has already keeps its result."""

    into: Positional[Path]
    others: Positional[tuple[Path, ...]]
    json: Json = False

    def run(self) -> int:
        from regard.lab.experiment.ledger import Ledger

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
    if name == "--tyro-print-completion" and rest and rest[0] in ("bash", "zsh", "fish"):
        subcommand_cli_from_dict(CLASSES, prog="regard", args=args)
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
    from regard.cli.names import run as named
    from regard.lab.data.files import check_writable
    from regard.lab.train import Run, train
    from regard.lab.train.display import check_trackers
    from regard.lab.train.ending import beside, ending
    from regard.lab.train.launched import is_main, said_once

    usual = named(name)
    home = Path("runs/train") / name.replace(":", ".").replace("/", ".")

    def given(
        run: Annotated[Run, arg(name="")] = usual,
        folder: Path = home,
        wait: Annotated[
            FlagCreatePairsOff[bool], arg(help="wait for a process that trains in the folder")
        ] = False,
        report_to: Annotated[
            tuple[Literal["wandb", "mlflow"], ...], arg(help="also, beside TensorBoard's files")
        ] = (),
        json: Json = False,
    ) -> tuple[Any, ...]:
        return run, folder, wait, report_to, json

    run, folder, wait, report_to, json = parse(given, f"regard train {name}", args)
    check_trackers(report_to)
    check_writable(folder, folder=True)
    splits = run.task.load()
    if not json and is_main() and (columns := run.task.read_as(splits)):
        print(f"Read as: {columns}.")
    try:
        model, result = train(
            run, folder, splits=splits, wait=wait, progress=not json, report_to=report_to
        )
    except RegardError as error:
        said_once(error, _refused)
        return 2
    if not is_main():
        return 0
    series = {"curve": result.curve, "losses": result.losses}
    found = {field: value for field, value in asdict(result).items() if field not in series}
    others = beside(run.task, splits)
    if json:
        print_json(found | series | {"beside": others, "folder": str(folder)})
    else:
        head = {name: found[name] for name in ("metric", "better", "value")}
        head |= {f"value of {name}": value for name, value in others.items()}
        rows = head | found | {"folder": folder}
        print_table({"what": key, "value": value} for key, value in rows.items())
        print(*ending(run, folder, model, result, splits), sep="\n")
    return 0
