"""The laboratory: data, tasks, training and the arena. It needs the extra `lab`."""

from importlib.util import find_spec

PACKAGES = (
    *("accelerate", "altair", "filelock", "jinja2", "PIL", "rouge_score", "sacrebleu"),
    *("sklearn", "tensorboard", "tokenizers", "torchmetrics", "vl_convert"),
)
"""The packages of the extra `lab`, by their import names."""


def require_packages() -> None:
    """Raises ModuleNotFoundError for the first package that is missing, before a run stops at it half-way."""
    for name in PACKAGES:
        if find_spec(name) is None:
            raise ModuleNotFoundError(
                f"regard.lab needs {name}, which is not installed: pip install 'regard[lab]'",
                name=name,
            )
