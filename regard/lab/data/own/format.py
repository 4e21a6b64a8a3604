"""Format: the layout of a user's copy of a data set, and the function that reads it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Parts = Mapping[str, Any]
"""Name of a split, as the files have it, to Texts, LabelledPairs, Images, Expressions or bytes."""


@dataclass(frozen=True, kw_only=True)
class Format:
    name: str
    about: str
    layout: str
    """what the path must hold"""
    read: Callable[[Path], Parts]
    count: Callable[[Any], dict[str, int]] | None = None
    """of a part that is none of these"""

    def sizes(self, path: Path) -> dict[str, dict[str, int]]:
        """Split -> what it holds and how many. Raises MissingDataError, StoredDataError."""
        count = self.count or _size
        return {name: count(part) for name, part in self.read(path).items()}


def _size(part: Any) -> dict[str, int]:
    if isinstance(part, bytes):
        return {"bytes": len(part)}
    found = {"items": len(part.labels if hasattr(part, "labels") else part.values)}
    if hasattr(part, "classes"):
        found["classes"] = len(part.classes)
    return found
