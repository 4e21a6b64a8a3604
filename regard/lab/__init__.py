"""The laboratory: data, tasks, training, and questions put to mechanisms. It needs the extra `lab`."""

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from regard.core.options import check_calls

if TYPE_CHECKING:
    from regard.lab.experiment.entry import Entry
    from regard.lab.experiment.question import (
        Claim,
        Column,
        Expected,
        Fitted,
        Question,
        Shell,
        above,
        below,
        near,
        reaches,
        stays_below,
    )
    from regard.lab.experiment.run import ask
    from regard.lab.experiment.speed import Setting

_QUESTION = "Claim Column Expected Fitted Question Shell above below near reaches stays_below"
_HOMES = dict.fromkeys(_QUESTION.split(), "regard.lab.experiment.question") | {
    "Entry": "regard.lab.experiment.entry",
    "Setting": "regard.lab.experiment.speed",
    "ask": "regard.lab.experiment.run",
}
__all__ = [
    "Claim", "Column", "Entry", "Expected", "Fitted", "Question", "Setting", "Shell",
    "above", "ask", "below", "near", "reaches", "stays_below",
]  # fmt: skip
PACKAGES = (
    *("accelerate", "altair", "filelock", "jinja2", "PIL", "rouge_score", "sacrebleu"),
    *("scipy", "sklearn", "tensorboard", "tokenizers", "torchmetrics", "vl_convert"),
)
"""The packages of the extra `lab`, by their import names."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = {name: getattr(import_module(_HOMES[name]), name)}
    check_calls(found, [name])
    return globals().setdefault(name, found[name])


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})


def require_packages() -> None:
    """Raises ModuleNotFoundError for the first package that is missing, before a run stops at it half-way."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"regard.lab needs {name}, which is not installed: pip install 'regard[lab]'",
                name=name,
            )
