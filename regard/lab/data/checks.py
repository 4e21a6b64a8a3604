"""Checks of a data source's options, made before any work."""

from pathlib import Path

from regard.core import MissingDataError


def need(path: Path, layout: str) -> Path:
    """The path, if it is there. Raises MissingDataError, which names the expected layout."""
    if not path.exists():
        raise MissingDataError(f"there is no {path}. Expected: {layout}")
    return path
