"""Versions of other packages, installed and needed; a torch that is too old is refused when this is imported."""

import re
from functools import cache
from importlib import metadata

import torch

OLDEST_TORCH = "2.10"


def version(distribution: str) -> str | None:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


def numbers(version: str) -> tuple[int, ...]:
    """`numbers("2.10.0a0+git")` -> (2, 10, 0)."""
    return tuple(map(int, re.findall(r"\d+", re.split(r"[^\d.]", version)[0])))


@cache
def lacking(distribution: str, oldest: str) -> str | None:
    """Says how to install this version, or None where it or a later one is installed."""
    found = version(distribution)
    if found is not None and numbers(found) >= numbers(oldest):
        return None
    here = "" if found is None else f", here is {found}"
    return f"{distribution} {oldest} or later{here}: pip install '{distribution}>={oldest}'"


def lacking_extra(error: ModuleNotFoundError) -> str | None:
    """Says how to install the missing module, through the extra `lab`, `hf` or `ray`; None for a module of Regard itself."""
    missing = (error.name or "").partition(".")[0]
    if missing in ("", "regard"):
        return None
    extra = {"transformers": "hf", "ray": "ray"}.get(missing, "lab")
    return f"{missing}, which is not installed: pip install 'regard[{extra}]'"


def require_torch(found: str) -> None:
    """Raises ImportError where this version of torch is too old, before anything fails that only newer ones have."""
    if numbers(found) < numbers(OLDEST_TORCH):
        raise ImportError(
            f"regard needs torch {OLDEST_TORCH} or later, here is {found}: pip install 'torch>={OLDEST_TORCH}'"
        )


require_torch(torch.__version__)
