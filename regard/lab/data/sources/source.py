"""Source: where data comes from, pinned, and what it may be used for."""

from dataclasses import dataclass
from typing import Literal

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


@dataclass(frozen=True)
class Source:
    """`packages` are fetched; a source without any is on this machine already."""

    name: str
    about: str
    licence: Literal["E", "F", "R"]
    terms: str
    """the licence in words"""
    packages: tuple[Package, ...] = ()

    @property
    def megabytes(self) -> float:
        """Size of the download."""
        return sum(package.bytes for package in self.packages) / 1e6

    @property
    def get_command(self) -> str:
        return f"regard data get {self.name}" + (" --accept-licence" if self.licence == "R" else "")
