"""Explicit catalogues: a mapping of names to entries, with a suggestion when the name is wrong."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol, TypeVar

from regard.core.errors import OptionError, UnknownNameError, shown


class Named(Protocol):
    @property
    def name(self) -> str: ...


Entry = TypeVar("Entry", bound=Named)


class Catalog(Mapping[str, Entry]):
    """Name -> entry (a class or an object with a `name`), in the order in which they are listed.

    >>> MIXERS["linear"]        # the entry
    >>> MIXERS["liner"]         # UnknownNameError: unknown mixer 'liner'. Did you mean 'linear'?
    >>> list(MIXERS)            # the names, as `MIXERS.names()`; `MIXERS.values()` gives the entries
    """

    def __init__(self, kind: str, entries: Sequence[Entry]):
        self.kind = kind
        names = [getattr(entry, "name", None) for entry in entries]
        if None in names or len(set(names)) < len(names):
            raise OptionError(f"entries of {kind} must have a name each, got {shown(names)}")
        self._entries = {entry.name: entry for entry in entries}

    def names(self) -> list[str]:
        return list(self._entries)

    _ipython_key_completions_ = names

    def __getitem__(self, name: str) -> Entry:
        try:
            return self._entries[name]
        except (KeyError, TypeError):
            raise UnknownNameError(self.kind, name, self._entries) from None

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"Catalog({self.kind}: {', '.join(self._entries)})"
