"""Explicit catalogues: a tuple of entries, looked up by name, with a suggestion when the name is wrong."""

from collections.abc import Iterator, Sequence
from typing import Generic, Protocol, TypeVar

from regard.core.errors import UnknownNameError


class Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Catalog(Generic[Entry]):
    """Entries (classes or objects with a `name`) in the order in which they are listed.

    >>> MIXERS["linear"]        # the entry
    >>> MIXERS["liner"]         # UnknownNameError: unknown mixer 'liner'. Did you mean 'linear'?
    """

    def __init__(self, kind: str, entries: Sequence[Entry]):
        self.kind = kind
        self._entries = {entry.name: entry for entry in entries}
        assert len(self._entries) == len(entries), f"two entries of {kind} share a name"

    def names(self) -> list[str]:
        return list(self._entries)

    def __getitem__(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise UnknownNameError(self.kind, name, self._entries) from None

    def __contains__(self, name: object) -> bool:
        return name in self._entries

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._entries.values())

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Catalog({self.kind}: {', '.join(self._entries)})"
