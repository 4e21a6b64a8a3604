"""Estimate, before a model is built, whether this machine has the memory to train it."""

import os
from pathlib import Path

import torch

from regard.core import OptionError
from regard.models import ModelConfig

BYTES = 16
"""For each trained number in float32: itself, its gradient, and the two means that AdamW keeps."""
_LIMITS = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")


def check_memory(config: ModelConfig) -> None:
    """Raises OptionError for a model whose weights, gradients and AdamW means alone are larger than the memory."""
    try:
        with torch.device("meta"):
            count = sum(p.numel() for p in config.build().parameters() if p.requires_grad)
    except RuntimeError as error:
        if "overflow" not in str(error):
            raise
        count = 2**60  # a tensor beyond what torch can count
    room = _memory()
    if room is not None and BYTES * count > room:
        raise OptionError(
            f"{config.name} has {count:,} numbers, and training them takes {BYTES * count / 2**30:,.1f} GiB for weights, "
            f"gradients and AdamW's means; this machine has {room / 2**30:,.1f} GiB. Choose a smaller model."
        )


def _memory() -> int | None:
    """Bytes of the GPU, or else of this machine or of the part of it that the process may use; None where unknown."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_properties(0).total_memory
    found = []
    try:
        found.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    except (ValueError, OSError, AttributeError):
        pass
    for limit in map(Path, _LIMITS):
        try:
            found.append(int(limit.read_text()))
        except (OSError, ValueError):  # not Linux, or "max"
            continue
    return min(found, default=None)
