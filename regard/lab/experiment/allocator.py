"""Which memory allocator serves the process: on a CPU it moves timings by up to six times."""

import os

VARIABLES = (
    "LD_PRELOAD",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_TOP_PAD_",
    "MALLOC_ARENA_MAX",
    "PYTORCH_ALLOC_CONF",
    "PYTORCH_CUDA_ALLOC_CONF",
)


def allocator() -> str:
    """The settings that differ from the system's own: "default", or "MALLOC_TOP_PAD_=67108864"."""
    changed = [f"{name}={os.environ[name]}" for name in VARIABLES if os.environ.get(name)]
    return ", ".join(changed) or "default"
