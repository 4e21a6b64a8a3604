"""The laboratory: data, tasks, training, and questions put to mechanisms. It needs the extra `lab`."""

from collections.abc import Iterable
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from regard.core import check_calls

if TYPE_CHECKING:
    from regard.lab.experiment.question import (
        Claim,
        Column,
        Entry,
        Expected,
        Fitted,
        Question,
        Setting,
        Shell,
        above,
        below,
        near,
        reaches,
        stays_below,
    )
    from regard.lab.experiment.run import ask

__all__ = [
    "Claim", "Column", "Entry", "Expected", "Fitted", "Question", "Setting", "Shell",
    "above", "ask", "below", "near", "reaches", "stays_below",
]  # fmt: skip
PACKAGES = (
    "accelerate", "altair", "filelock", "PIL", "rouge_score", "sacrebleu",
    "scipy", "sklearn", "tensorboard", "tokenizers", "vl_convert",
)  # fmt: skip
"""The packages of the extra `lab`, by their import names."""


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"regard.lab.experiment.{'run' if name == 'ask' else 'question'}")
    globals()[name] = getattr(home, name)
    check_calls(globals(), [name])
    return globals()[name]


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


def require_packages(names: Iterable[str] = PACKAGES, extra: str = "lab") -> None:
    """Raises ModuleNotFoundError for the first package that is missing, before a run stops at it half-way."""
    for name in names:
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"regard.lab needs {name}, which is not installed: pip install 'regard[{extra}]'",
                name=name,
            )
