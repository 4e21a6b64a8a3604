"""`regard` in this process, as a person types it."""

import json
import shlex
from typing import Any

from regard.cli import main


def ran(capsys: Any, *words: str) -> tuple[int, str, str]:
    """Exit code, and what was printed; a word may hold several, with spaces between them."""
    code = main([one for word in words for one in shlex.split(word)])
    return code, *capsys.readouterr()


def loaded(capsys: Any, *words: str) -> Any:
    code, out, err = ran(capsys, *words, "--json")
    assert code == 0, err
    return json.loads(out)


def refused(capsys: Any, *words: str) -> str:
    """The one line on stderr; nothing is on stdout."""
    code, out, err = ran(capsys, *words)
    assert code == 2 and out == "" and "Traceback" not in err and err.count("\n") == 1, (out, err)
    return err
