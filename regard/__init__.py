"""Regard: attention mechanisms behind one interface, proved against slow references and measured on your machine."""

import importlib
from typing import Any

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
from regard.functional.shared.implementation import Eager
from regard.mixers import MIXERS, build

__version__ = "0.1.0"

_PARTS = {
    "reference",
    "nn",
    "positions",
    "pools",
    "models",
    "testing",
    "lab",
}  # imported when first used
_CATALOGS = {
    "MODELS": "models",
    "TASKS": "lab.tasks",
    "POOLS": "pools",
    "POSITIONS": "positions",
    "FEED_FORWARDS": "nn",
    "SCORES": "nn",
}


def __getattr__(name: str) -> Any:
    if name in _PARTS:
        return importlib.import_module(f"regard.{name}")
    if name in _CATALOGS:
        return getattr(importlib.import_module(f"regard.{_CATALOGS[name]}"), name)
    raise AttributeError(f"module 'regard' has no attribute {name!r}")


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
