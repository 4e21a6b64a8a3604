"""Source: where data comes from, pinned; what it may be used for; what to expect in it."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from regard.lab.data.archives import Archive

Channel = Literal["pypi", "npm", "debian", "debian-index"]
LICENCES = {
    "E": "open: public domain, CC0, CC BY, MIT or BSD",
    "F": "free, but share-alike or a mix of many licences: fetch it, do not copy it on",
    "R": "research only or unclear: fetched after --accept-licence, never passed on",
}


@dataclass(frozen=True)
class Package:
    """One archive of a package registry, to the byte."""

    channel: Channel
    name: str
    version: str
    file: str
    """its name in the cache; the ending decides how it is read"""
    bytes: int
    sha256: str


@dataclass(frozen=True, kw_only=True)
class Source:
    """`packages` are fetched; `installed` instead finds a folder that is on this machine already.

    `counts` is what `count` found when the record was written. Installed sources differ between versions, and have
    no counts.
    """

    name: str
    about: str
    licence: Literal["E", "F", "R"]
    terms: str
    """the licence in words"""
    packages: tuple[Package, ...] = ()
    installed: Callable[[], Path] | None = None
    counts: Mapping[str, int] = field(default_factory=dict)
    count: Callable[[Archive], Mapping[str, int]] | None = None

    @property
    def megabytes(self) -> float:
        """Size of the download."""
        return sum(package.bytes for package in self.packages) / 1e6

    @property
    def get_command(self) -> str:
        return f"regard data get {self.name}" + (" --accept-licence" if self.licence == "R" else "")
