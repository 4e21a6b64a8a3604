"""Regard: attention mechanisms behind one interface, proved against slow references and measured on your machine."""

import importlib
from typing import Any

import regard.starting as _starting  # noqa: F401  # before torch
from regard import functional
from regard.core import (
    Capabilities,
    Catalog,
    Mask,
    Mixer,
    No,
    Observation,
    OptionError,
    RegardError,
    ShapeError,
    StoredDataError,
    UnknownNameError,
    UnsupportedError,
)
from regard.core.errors import suggestion
from regard.core.packages import lacking_extra
from regard.functional.shared.implementation import Eager
from regard.mixers import MIXERS, build

__version__ = "0.1.0"

_PARTS = ("hf", "lab", "models", "nn", "pools", "positions", "reference", "testing")
_CATALOGS = {
    "FEED_FORWARDS": "nn",
    "MODELS": "models",
    "POOLS": "pools",
    "POSITIONS": "positions",
    "SCORES": "nn",
    "TASKS": "lab.tasks",
}


def __getattr__(name: str) -> Any:
    """Submodules and catalogues are imported when they are first used."""
    if name not in (*_PARTS, *_CATALOGS):
        hint = suggestion(name, __dir__(), otherwise="")
        raise AttributeError(f"module 'regard' has no attribute {name!r}. {hint}".rstrip())
    try:
        module = importlib.import_module(f"regard.{_CATALOGS.get(name, name)}")
    except ModuleNotFoundError as error:
        if missing := lacking_extra(error):
            raise ModuleNotFoundError(f"regard.{name} needs {missing}", name=error.name) from None
        raise
    return getattr(module, name) if name in _CATALOGS else module


def __dir__() -> list[str]:
    return sorted({*globals(), *_PARTS, *_CATALOGS})


__all__ = [
    "FEED_FORWARDS",
    "MIXERS",
    "MODELS",
    "POOLS",
    "POSITIONS",
    "SCORES",
    "TASKS",
    "Capabilities",
    "Catalog",
    "Eager",
    "Mask",
    "Mixer",
    "No",
    "Observation",
    "OptionError",
    "RegardError",
    "ShapeError",
    "StoredDataError",
    "UnknownNameError",
    "UnsupportedError",
    "build",
    "functional",
]
