"""The commands, and how a line is read and what is wrong with it told; each command imports what it needs."""

import os
import shlex
import signal
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

from tyro.conf import Positional, arg
from tyro.extras import subcommand_cli_from_dict

from regard.cli.arena import Arena
from regard.cli.arguments import Flag, Json, parse
from regard.cli.bench import LEDGER, PAGE, Bench, check_outputs
from regard.cli.convert import Convert
from regard.cli.data import Data
from regard.cli.describe import SOURCES, about, details, kinds, overview
from regard.cli.explore import Explore
from regard.cli.laws import Laws
from regard.cli.names import own, run as named
from regard.cli.printing import console, print_details, print_facts, print_json, print_table
from regard.cli.recommend import Recommend
from regard.core import Declared, OptionError, RegardError, UnknownNameError, blamed, visible_lines
from regard.core.files import check_writable, path_error
from regard.core.packages import lacking_extra


class Ls(Declared):
    """List what there is."""

    kind: Positional[str | None] = None
    """mixers, pools, scores, models, positions, feed_forwards, tasks, questions or sources; all by default"""
    json: Json = False

    def run(self) -> None:
        found = {kind: overview(kind) for kind in ([self.kind] if self.kind else kinds())}
        if self.json:
            print_json(found[self.kind] if self.kind else found)
            return
        for kind, rows in found.items():
            print_table(rows, title=kind)
        if not self.kind and (absent := SOURCES.keys() - found):
            print(f"{', '.join(sorted(absent))}: pip install 'regard[lab]'")


class Show(Declared):
    """Everything about one name: equation, paper, what it can do and why not, options, cost."""

    name: Positional[str]
    """of a catalogue, or module:Class of your own"""
    json: Json = False

    def run(self) -> None:
        found = [about(*own(self.name))] if ":" in self.name else details(self.name)
        if self.json:
            print_json(found)
            return
        for facts in found:
            print_details(facts)


class Train(Declared):
    """Train a task's default model, the one of TASK/MODEL, or one entry of a question: QUESTION/ENTRY/COLUMN.

    `regard train NAME --help` lists all fields.

    Your own is a function that returns a Run, with any task and model in it: `regard train module:function`.
    """

    name: Positional[str]
    """a name of `regard ls tasks`, TASK/MODEL with one of `regard ls models`, QUESTION/ENTRY/COLUMN, or module:function of your own"""


class Report(Declared):
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

    def run(self) -> None:
        from regard.lab.report import document, picture, read_rows, terminal, told, write_page

        check_outputs([self.ledger], page=self.page, picture=self.picture, document=self.document)
        if not self.ledger.exists():
            raise OptionError(f"there is no ledger at {self.ledger}. `regard arena` makes one.")
        rows = read_rows(self.ledger)
        if self.question is not None:
            names = dict.fromkeys(row.question for row in rows if row.kind == "asked")
            if self.question not in names:
                raise UnknownNameError("asked question", self.question, names)
            rows = [row for row in rows if row.kind != "asked" or row.question == self.question]
        page = write_page(rows, self.page).resolve()
        of_one = rows
        if self.document and (asked := told(rows)["questions"]):  # of which it is
            name = asked[0]["name"]
            of_one = [row for row in rows if row.kind != "asked" or row.question == name]
        drawn = self.picture and picture(of_one, self.picture)
        written = self.document and document(of_one, self.document, drawn)
        if self.json:
            print_json(told(rows) | {"page": page, "picture": drawn, "document": written})
        else:
            console().print(terminal(rows))
            print(f"\nThe page: {page}")


class Merge(Declared):
    """Put the rows of other ledgers into one. A trial that it has already keeps its result."""

    into: Positional[Path]
    others: Positional[tuple[Path, ...]]
    json: Json = False

    def run(self) -> None:
        from regard.lab.experiment.ledger import Ledger

        if not self.others:
            raise OptionError(f"merge: name the ledgers whose rows {self.into} takes, after it")
        for path in self.others:
            if not path.exists():
                raise OptionError(f"there is no ledger at {path}")
        with ExitStack() as opened:
            others = [opened.enter_context(Ledger(path)) for path in self.others]
            for other in others:
                other.rows()  # what is damaged is refused before a new ledger is made
            into = opened.enter_context(Ledger(self.into))
            found = [{"ledger": other.path, "new rows": into.merge(other)} for other in others]
        if self.json:
            print_json({"into": self.into, "merged": found})
        else:
            print_table(found)


class Doctor(Declared):
    """This machine: versions, threads, devices, settings, and what is missing."""

    json: Json = False

    def run(self) -> int:
        from regard.cli.doctor import examine, missing

        rows = examine()
        (print_json if self.json else print_table)(rows)
        return 1 if missing(rows) else 0


SCREEN = 24 * 80
"""Characters of an error that are printed."""
GOES_ON = {"train", "arena", "data", "convert"}
"""Commands that keep what is finished, so that the same command goes on after an interruption."""
CLASSES: dict[str, Callable] = {
    cls.__name__.lower(): cls
    for cls in (
        Ls, Show, Bench, Train, Arena, Report, Merge, Recommend, Explore, Convert, Data, Laws, Doctor
    )
}  # fmt: skip


def main(args: Sequence[str]) -> int:
    """Exit code: as of `regard.cli.main`."""
    try:
        code = _run(args)
        sys.stdout.flush()  # a full disk is found here rather than at the end of the process
        return code
    except RegardError as error:
        return _refused(str(error))
    except ModuleNotFoundError as error:
        missing = lacking_extra(error)
        if not missing:
            raise
        print(f"regard: {args[0]} needs {missing}", file=sys.stderr)
        return 1
    except SystemExit as stop:  # tyro has printed the help, or what is wrong
        return stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except KeyboardInterrupt as stop:
        number, *_ = (*stop.args, signal.SIGINT)
        said = "interrupted" if number == signal.SIGINT else f"ended by {number.name}"
        again = f". This goes on: {shlex.join(['regard', *args])}" if args[0] in GOES_ON else ""
        print(f"regard: {said}{again}", file=sys.stderr)
        return 128 + number
    except OSError as error:
        return failed(error)
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        said = str(error).partition("\n")[0]
        return _refused(f"out of memory ({said}). Choose a smaller model, batch or length.")


def _run(args: Sequence[str]) -> int:
    name, *rest = args
    if name == "--tyro-print-completion" and rest and rest[0] in ("bash", "zsh", "fish"):
        subcommand_cli_from_dict(CLASSES, prog="regard", args=args)
    if name not in CLASSES:
        raise UnknownNameError("command", name, CLASSES)
    try:
        if name == "train" and rest and not rest[0].startswith("-"):
            return _train(*rest)
        return parse(CLASSES[name], f"regard {name}", rest).run() or 0
    except (RegardError, KeyboardInterrupt):
        raise
    except BaseException as error:
        told = blamed(error)
        if not told or _is_out_of_memory(error):
            raise
        raise OptionError(told) from error


def failed(error: OSError) -> int:
    """Exit code, once the reason is on stderr."""
    if error.filename is None:  # `regard ls | head`, or a file of a full disk
        # unwritten output is dropped, so that the end of the process does not try again
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(error, BrokenPipeError):
        return 0
    path = "the output" if error.filename is None else os.fsdecode(error.filename)
    return _refused(str(path_error(path, error.errno, str(error), "used")))


def _refused(sentence: str) -> int:
    text = visible_lines(sentence)
    print(f"regard: {text[:SCREEN]}{'...' * (len(text) > SCREEN)}", file=sys.stderr)
    return 2


def _is_out_of_memory(error: BaseException) -> bool:
    known = ("can't allocate memory", "not enough memory", "out of memory")
    said = str(error) if isinstance(error, RuntimeError) else ""  # another's may not be text
    return isinstance(error, MemoryError) or any(words in said for words in known)


def _train(name: str, *args: str) -> int:
    from regard.lab.tasks import Splits
    from regard.lab.train import Run, load, train
    from regard.lab.train.ending import beside, ending
    from regard.lab.train.launched import is_main, processes, said_once

    usual = named(name)
    home = Path("runs/train") / name.replace(":", ".").replace("/", ".")

    def given(
        run: Annotated[Run, arg(name="")] = usual,
        folder: Path = home,
        wait: Annotated[Flag, arg(help="wait for a process that trains in the folder")] = False,
        report_to: Annotated[
            tuple[Literal["wandb", "mlflow"], ...], arg(help="also, beside TensorBoard's files")
        ] = (),
        json: Json = False,
    ) -> tuple:
        return run, folder, wait, report_to, json

    run, folder, wait, report_to, json = parse(given, f"regard train {name}", args)
    check_writable(folder, folder=True)
    splits = Splits.of(run.task)
    try:
        model, result = train(
            run, folder, splits=splits, wait=wait, progress=not json, report_to=report_to
        )
    except RegardError as error:
        said_once(error, _refused)
        return 2
    if not is_main():
        return 0
    if processes() > 1:  # under FSDP2 each has a part of the model
        model = load(folder, run, splits=splits)
    found = asdict(result)
    others = beside(run.task, splits)
    if json:
        print_json(found | {"beside": others, "folder": folder})
        return 0
    del found["curve"], found["losses"]
    head = {name: found[name] for name in ("metric", "better", "value")}
    head |= {f"value of {name}": value for name, value in others.items()}
    print_facts(head | found | {"folder": folder})
    print(*ending(run, folder, model, result, splits), sep="\n")
    return 0
