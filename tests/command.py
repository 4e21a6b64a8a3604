"""`regard` in this process, as a person types it; Python in another; and a function in several processes at once."""

import json
import multiprocessing
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import torch
import torch.distributed as dist

from regard.cli import main

QUIET = {"PYTHONWARNDEFAULTENCODING": ""}


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


def python(*words: object, cwd: Any = None, **env: str) -> subprocess.CompletedProcess[str]:
    """A Python of its own, as it ended, and what it printed."""
    command, given = [sys.executable, *map(str, words)], os.environ | QUIET | env
    return subprocess.run(command, capture_output=True, text=True, cwd=cwd, env=given)


def run_code(code: str, name: str) -> dict[str, Any]:
    """The names of a module of this name, so that its classes can be pickled."""
    module = sys.modules[name] = ModuleType(name)
    exec(compile(code, name, "exec"), vars(module))
    return vars(module)


def in_four_processes(function: Callable[[int, str], None], folder: str) -> None:
    """`function(rank, folder)` in each, as one group; they come from one that has imported what they need."""
    callers = ["tests.mixers.test_routing", "tests.parallel.test_models"]
    multiprocessing.set_forkserver_preload(callers)
    given = function, folder
    torch.multiprocessing.start_processes(_in_a_group, given, nprocs=4, start_method="forkserver")


def _in_a_group(rank: int, function: Callable[[int, str], None], folder: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{folder}/it", rank=rank, world_size=4)
    function(rank, folder)
    dist.barrier()
    dist.destroy_process_group()
