"""The command line, `regard` and `python -m regard`. The list of commands is printed without loading torch."""

import os
import signal
import sys
from collections.abc import Callable, Sequence
from io import TextIOWrapper

import regard

COMMANDS = {
    "ls": "list what there is",
    "show": "everything about one name: equation, paper, what it can do and why not, options, cost",
    "bench": "time mixers beside fused softmax attention",
    "train": "train a model on a task",
    "arena": "ask a question: train and time what it compares",
    "report": "draw what the arena found: a table here, and a page that opens from disk",
    "merge": "put the results of other ledgers into one",
    "recommend": "which mechanism for your length and needs, with time, memory and reasons",
    "explore": "what a model attends to, head by head: a page that opens from disk",
    "convert": "put another mechanism into a trained model of Transformers",
    "data": "list, fetch and describe the sources of real data",
    "laws": "run the laws on a mixer, the library's or your own",
    "doctor": "what this machine has, and what is missing",
}
"""Command -> what it does."""
HELP = f"""\
usage: regard COMMAND [OPTIONS]

Attention mechanisms behind one interface, measured on your machine.

{chr(10).join(f"  {name:<11}{what}" for name, what in COMMANDS.items())}

  --help     print this; after a command, its options
  --version  print the version
"""


def _writable() -> None:
    """Letters that an output does not have are written as escapes; an output that is closed takes everything, and shows nothing."""
    sys.stdout, sys.stderr = (
        z or open(os.devnull, "w", encoding="utf-8") for z in (sys.stdout, sys.stderr)
    )
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # and not what a program has put in its place
            stream.reconfigure(errors="backslashreplace")


def main(argv: Sequence[str] | None = None) -> int:
    """Exit code: 0 done, 1 something is missing or broken, 2 the request cannot be met (the reason is on stderr), 128 + a signal."""
    args = list(sys.argv[1:] if argv is None else argv)
    if argv is None:
        _writable()
    version = f"regard {regard.__version__}\n"
    quick = {"": HELP, "--help": HELP, "-h": HELP, "--version": version}.get(" ".join(args))
    if quick:
        try:
            print(quick, end="", flush=True)
            return 0
        except OSError as error:
            from regard.cli import commands

            return commands.failed(error)
    if argv is None:
        _on_signals(_before)  # while torch is imported, a second or two
    try:
        from regard.cli import commands
    except ImportError as error:
        if not str(error).startswith("regard needs"):
            raise
        print(f"regard: {error}", file=sys.stderr)
        return 1
    if argv is None:
        _on_signals(_stop)
    return commands.main(args)


def _on_signals(handler: Callable[..., None]) -> None:
    """Let Ctrl-C, `kill` and a closed terminal call it, unless the caller has them ignored, as nohup does."""
    for name in ("SIGINT", "SIGTERM", "SIGHUP"):
        number = getattr(signal, name, None)  # Windows has no SIGHUP
        if number and signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, handler)


def _before(number: int, _: object) -> None:
    os.write(2, b"regard: interrupted before it began\n")
    os._exit(128 + number)


def _stop(number: int, _: object) -> None:
    raise KeyboardInterrupt(signal.Signals(number))


def run() -> None:
    sys.exit(main())
