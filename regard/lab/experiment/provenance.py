"""Origin of a number: commit, command, device, versions."""

import os
import platform
import shlex
import subprocess
import sys
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

import torch

import regard
from regard.lab.experiment.row import Provenance

PACKAGE = Path(regard.__file__).parent
VARIABLES = (
    "GLIBC_TUNABLES",
    "LD_PRELOAD",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_ARENA_MAX",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
)


def provenance(*, device: str = "cpu", dtype: str = "float32", of: str | None = None) -> Provenance:
    """Provenance of what this process computes now on this device; the commit is `of`, or the checkout's."""
    return Provenance(
        commit=of or commit(),
        command=own_command(),
        device=describe(device),
        threads=torch.get_num_threads(),
        dtype=dtype,
        versions=versions(),
        started=clock(),
        allocator=allocator(),
    )


def clock() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def allocator() -> str:
    """The memory allocator, which moves timings on a CPU by up to six times: "default", or the settings that differ from the system's."""
    changed = [f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)]
    return ", ".join(changed) or "default"


def versions() -> dict[str, str]:
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "regard": regard.__version__,
    }


def own_command() -> str:
    program, *arguments = sys.argv
    path = Path(program)
    name = f"python -m {path.parent.name}" if path.name == "__main__.py" else path.name
    return shlex.join([*name.split(), *arguments])


def describe(device: str) -> str:
    """Name of the device: "AMD EPYC 7B13, 2 threads", "NVIDIA H100 80GB HBM3"."""
    if torch.device(device).type == "cuda":
        return torch.cuda.get_device_name(device)
    threads = torch.get_num_threads()
    return f"{_processor()}, {threads} thread{'s' if threads > 1 else ''}"


def own_device() -> str:
    """The kind of device that this process computes on."""
    return "cuda" if torch.cuda.is_available() else "cpu"


def cores() -> int:
    """Processors that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def commit(*files: Path) -> str:
    """Commit of the checkout that holds this package; "unknown" without one.

    "+changes" where the checkout is not clean, or one of these files of one's own is edited, untracked or in no repository.
    """
    head = _head()
    edited = (
        _git("status", "--porcelain", "--ignored", "--", file.name, at=file.parent) != ""
        for file in files
    )
    return head + "+changes" * (head[12:] == "" and any(edited))


@cache
def _head() -> str:
    top = _git("rev-parse", "--show-toplevel")
    if top is None or Path(top).resolve() != PACKAGE.parent.resolve():
        return "unknown"
    head = _git("rev-parse", "HEAD")
    changes = _git("status", "--porcelain", "--untracked-files=no")
    return "unknown" if head is None else head[:12] + ("+changes" if changes else "")


@cache
def _processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text("utf-8").splitlines()
    except OSError:
        lines = []
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(filter(None, names), platform.processor() or platform.machine())


def _git(*arguments: str, at: Path = PACKAGE) -> str | None:
    try:
        done = subprocess.run(
            ["git", "-C", at, *arguments], capture_output=True, encoding="utf-8", timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None
