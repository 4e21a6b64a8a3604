"""Criteo's display advertising data: `regard.lab.data.criteo` reads it."""

from pathlib import Path
from typing import Any

from regard.lab.data.criteo import LAYOUT, read_criteo
from regard.lab.data.own.format import Format, Parts


def read(path: Path) -> Parts:
    return {"all": read_criteo(path)}


def _count(part: Any) -> dict[str, int]:
    fields, labels = part
    return {"rows": len(labels), "clicked": int(labels.sum()), "fields": len(fields)}


FORMAT = Format(
    name="criteo",
    about="Criteo's display advertising data: was it clicked",
    layout=LAYOUT,
    read=read,
    count=_count,
)
