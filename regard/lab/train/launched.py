"""Processes that a launcher (`torchrun`, `accelerate launch`) started together, and that train as one."""

import os
from collections.abc import Callable

import torch.distributed as dist
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list

from regard.core import RegardError

_EVERYWHERE = "every process of the launcher raised this"


def processes() -> int:
    """Number of processes that were started together, this one among them."""
    if dist.is_available() and dist.is_initialized():
        return dist.get_world_size()
    return int(os.environ.get("WORLD_SIZE", 1)) if "LOCAL_RANK" in os.environ else 1


def is_main() -> bool:
    """True in the one process that prints."""
    return processes() == 1 or os.environ.get("RANK", "0") == "0"


def by_main(accelerator: Accelerator, act: Callable[[], object]) -> None:
    """The first process acts while the others wait; a RegardError that it raises is raised in all of them."""
    error: RegardError | None = None
    if accelerator.is_main_process:
        try:
            act()
        except RegardError as raised:
            error = raised
    error = broadcast_object_list([error])[0]
    if error is not None:
        if accelerator.num_processes > 1:
            error.add_note(_EVERYWHERE)
        raise error


def said_once(error: RegardError, say: Callable[[str], object]) -> None:
    """The first process says an error that all of them raised, and none ends before it is said. Raises any other error."""
    if _EVERYWHERE not in getattr(error, "__notes__", ()):
        raise error
    if is_main():
        say(str(error))
    dist.barrier()
