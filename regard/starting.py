"""Ctrl-C while the command line starts: one line. Importing torch takes a second; after it, `regard.cli` takes over."""

import os
import signal
import sys


def _is_command() -> bool:
    """True while `regard` or `python -m regard` starts."""
    if sys.argv[:1] == ["-m"]:
        return sys.orig_argv[sys.orig_argv.index("-m") + 1 :][:1] == ["regard"]
    return bool(sys.argv) and os.path.basename(sys.argv[0]) == "regard"


def _interrupted(*_: object) -> None:
    os.write(2, b"regard: interrupted before it began\n")
    os._exit(130)


IS_COMMAND = _is_command()
if IS_COMMAND:
    signal.signal(signal.SIGINT, _interrupted)
