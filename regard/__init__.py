"""Regard: attention mechanisms behind one interface, proved against slow references and measured on your machine.

`import regard` loads nothing; the vocabulary (`Mask`, `Mixer`, errors), mechanisms, models and all else load when they are first used.
"""

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
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
    from regard.functional.rows import Form
    from regard.mixers import MIXERS
    from regard.mixers.build import build

__version__ = "0.1.0"

_PARTS = (
    "core",
    "explore",
    "fast",
    "functional",
    "hf",
    "lab",
    "models",
    "nn",
    "parallel",
    "pools",
    "positions",
    "reference",
    "testing",
)
_LATER = {
    "FEED_FORWARDS": "nn",
    "MIXERS": "mixers",
    "MODELS": "models",
    "POOLS": "pools",
    "POSITIONS": "positions",
    "SCORES": "nn",
    "TASKS": "lab.tasks",
    "Form": "functional.rows",
    "build": "mixers",
}
"""Name -> the module of the package that has it, imported when the name is first used."""

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
    "Form",
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


def __getattr__(name: str) -> Any:
    """Submodules, catalogues and `build` are imported when they are first used."""
    if name in _PARTS:
        home = name
    elif name in __all__:
        home = _LATER.get(name, "core")
    else:
        from regard.core.errors import suggestion

        hint = suggestion(name, __dir__(), otherwise="")
        raise AttributeError(f"module 'regard' has no attribute {name!r}. {hint}".rstrip())
    try:
        module = importlib.import_module(f"regard.{home}")
    except ModuleNotFoundError as error:
        from regard.core.packages import lacking_extra

        if missing := lacking_extra(error):
            raise ModuleNotFoundError(f"regard.{name} needs {missing}", name=error.name) from None
        raise
    return module if name in _PARTS else globals().setdefault(name, getattr(module, name))


def __dir__() -> list[str]:
    return sorted({*globals(), *_PARTS, *__all__})
