"""One slow float64 oracle per mechanism, written from its paper with loops.

    regard.reference.<name>(params, options, x, *, context, causal, valid, pairwise, global_tokens, plan=None)
        -> (y [B T D], weights [B H T S] | None)

params: the module's state dict; options: the mixer's `options`; plan: its random or data-dependent structure.
An oracle is found by its name: the function `name` of `regard/reference/name.py`, or of `name_.py` for a keyword.
"""

import sys
from importlib import import_module
from keyword import iskeyword
from pkgutil import iter_modules
from types import ModuleType
from typing import Any


class _Oracles(ModuleType):
    def __getattr__(self, name: str) -> Any:
        file = f"{name}_" if iskeyword(name) else name
        if file not in dir(self):
            raise AttributeError(f"there is no oracle {name!r}: no file regard/reference/{file}.py")
        return getattr(import_module(f"{__name__}.{file}"), file)

    def __setattr__(self, name: str, value: Any):
        """The import system binds each submodule here; the name means the oracle in it."""
        super().__setattr__(name, getattr(value, name, value))

    def __dir__(self) -> list[str]:
        return [entry.name for entry in iter_modules(__path__) if not entry.name.startswith("_")]


sys.modules[__name__].__class__ = _Oracles
