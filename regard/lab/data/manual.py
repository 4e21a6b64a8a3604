"""Manual pages and which of them names which under SEE ALSO: two long documents, and whether they belong together.

A page is known by name and section, "epoll_wait(2)". Symbolic links and pages that only point elsewhere (.so) are other
names of a page. A reference counts when it leads to another page of the collection; "(3)" also finds a page of section
3ssl, as man does. Texts come without the section SEE ALSO and without any reference that leads to a page here.
"""

import gzip
import posixpath
import re
from collections.abc import Mapping
from typing import NamedTuple

from regard.lab.data.archives import Archive
from regard.lab.data.roff import Section, read_roff

_PAGE = re.compile(r"usr/share/man/man[^/]+/(?P<name>.+)\.(?P<section>[1-9]\w*)\.gz")
_ELSEWHERE = re.compile(r"^\.so\s+(\S+)", re.MULTILINE)
_REFERENCE = re.compile(r"(?<![\w./:-])([A-Za-z_][\w.:+@-]*) ?\(([1-9][a-z]*)\)")


class Page(NamedTuple):
    name: str
    section: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.name}({self.section})"


class Manual(NamedTuple):
    pages: dict[str, Page]  # by key, in the order of keys
    links: list[tuple[str, str]]  # keys: the first page names the second
    other_names: Mapping[str, str] = {}  # key that has no page of its own -> key of the page


def read_manual(archive: Archive) -> Manual:
    sources, other_names = _sources(archive)
    names = _Names(sources, other_names)
    pages, links = {}, set()
    for key in sorted(sources):
        name, section = _split(key)
        parts = read_roff(sources[key])
        text = "\n".join(_written(part) for part in parts if not _is_see_also(part))
        pages[key] = Page(name, section, names.without_references(text))
        for part in parts:
            if _is_see_also(part):
                links |= {(key, other) for other in names.cited(part.text) if other != key}
    return Manual(pages, sorted(links), other_names)


def count_manual(archive: Archive) -> Mapping[str, int]:
    pages, links, other_names = read_manual(archive)
    pairs = {tuple(sorted(link)) for link in links}
    lengths = sorted(len(page.text) for page in pages.values())
    return {
        "pages": len(pages),
        "other names": len(other_names),
        "directed links": len(links),
        "linked pairs": len(pairs),
        "linked pages": len({key for pair in pairs for key in pair}),
        "characters": sum(lengths),
        "median of a page": lengths[len(lengths) // 2],
        "pages over 4000": sum(length > 4000 for length in lengths),
    }


class _Names:
    """Looks up whom a reference means."""

    def __init__(self, sources: Mapping[str, str], other_names: Mapping[str, str]):
        self._keys = {key: key for key in sources} | dict(other_names)
        self._short: dict[str, str] = {}
        for key in sorted(self._keys):
            name, section = _split(key)
            self._short.setdefault(f"{name}({section[0]})", self._keys[key])

    def find(self, name: str, section: str) -> str | None:
        """The key of the page, whatever name it is called by."""
        key = f"{name}({section})"
        return self._keys.get(key) or self._short.get(key)

    def cited(self, text: str) -> set[str]:
        found = {self.find(name, section) for name, section in _REFERENCE.findall(text)}
        return {key for key in found if key is not None}

    def without_references(self, text: str) -> str:
        def shown(reference: re.Match) -> str:
            return "" if self.find(*reference.groups()) else reference.group()

        return _REFERENCE.sub(shown, text)


def _sources(archive: Archive) -> tuple[dict[str, str], dict[str, str]]:
    """Key -> roff of the pages that say something; other key -> key of the page that it leads to."""
    sources, leads_to = {}, {}
    for path in archive.names():
        found = _PAGE.fullmatch(path)
        if found is None:
            continue
        key = _key(found)
        text = gzip.decompress(archive.read(path)).decode("utf-8", errors="replace")
        elsewhere = _ELSEWHERE.search(text)
        if elsewhere and len(text) < 200:
            leads_to[key] = posixpath.join("usr/share/man", elsewhere.group(1) + ".gz")
        else:
            sources[key] = text
    for path, target in archive.links().items():
        found = _PAGE.fullmatch(path)
        if found is not None:
            at = posixpath.normpath(posixpath.join(posixpath.dirname(path), target))
            leads_to[_key(found)] = at
    return sources, _resolved(sources, leads_to)


def _resolved(sources: Mapping[str, str], leads_to: Mapping[str, str]) -> dict[str, str]:
    """Follows names that lead to names; those that end nowhere are left out."""
    resolved = {}
    for start in leads_to:
        key, seen = start, set()
        while key in leads_to and key not in seen:
            seen.add(key)
            found = _PAGE.fullmatch(leads_to[key])
            key = _key(found) if found else ""
        if key in sources:
            resolved[start] = key
    return resolved


def _key(path: re.Match) -> str:
    return f"{path['name']}({path['section']})"


def _split(key: str) -> tuple[str, str]:
    name, _, section = key.rpartition("(")
    return name, section.rstrip(")")


def _is_see_also(part: Section) -> bool:
    return part.title.strip().upper() == "SEE ALSO"


def _written(part: Section) -> str:
    return f"{part.title}\n{part.text}"
