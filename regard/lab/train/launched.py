"""Processes that a launcher (`torchrun`, `accelerate launch`) started together, and that train as one."""

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import torch
import torch.distributed as dist
from accelerate import Accelerator
from accelerate.state import AcceleratorState, PartialState
from accelerate.utils import broadcast_object_list
from torch import nn

from regard.core import OptionError, RegardError
from regard.lab.data.owners import owned

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
    error = None
    if accelerator.is_main_process:
        try:
            act()
        except RegardError as raised:
            error = raised
    error = broadcast_object_list([error])[0]
    if error:
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


@contextmanager
def alone(run_dir: Path, accelerator: Accelerator, wait: bool) -> Iterator[None]:
    """Refuses a folder in which another run is under way, or waits. The first process of a run owns it for all."""
    with ExitStack() as held:
        by_main(accelerator, lambda: held.enter_context(owned(run_dir / "run", wait=wait)))
        yield


@contextmanager
def accelerated(
    model: nn.Module, precision: str, report_to: Sequence[str]
) -> Iterator[Accelerator]:
    """Accelerate keeps one precision for the whole process, and wraps the model's forward: both are undone."""
    if AcceleratorState._shared_state and AcceleratorState().mixed_precision != precision:
        AcceleratorState._reset_state()
    count = processes()
    new = not PartialState._shared_state
    on_cpu = new and count > 1 and not torch.accelerator.is_available()
    accelerator = Accelerator(
        mixed_precision=precision, cpu=on_cpu, log_with=list(report_to) or None
    )
    if accelerator.num_processes != count:
        raise OptionError(
            f"fit cannot train in {count} processes: Accelerate knows of {accelerator.num_processes}, and each process would "
            "train alone, in one folder. Set ACCELERATE_USE_CPU=true for processes on a CPU, or start one process."
        )
    try:
        yield accelerator
    finally:
        for tracker in accelerator.trackers:
            tracker.finish()
        accelerator.unwrap_model(model, keep_fp32_wrapper=False)
        accelerator.free_memory()
