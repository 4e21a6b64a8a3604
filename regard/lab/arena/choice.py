"""Choice: a mechanism with its options, as a suite lists it."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from regard.core import Mixer, OptionError
from regard.lab.arena.source import label, source
from regard.mixers import MIXERS
from regard.mixers.build import build, resolve


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`mixer` is a catalogue name or a class; `options` are its own; `typed` is what a user wrote for the class."""

    mixer: str | type[Mixer]
    options: Mapping[str, Any] = field(default_factory=dict)
    typed: str = ""

    def __post_init__(self) -> None:
        if isinstance(self.mixer, type):
            source(self.mixer)  # as early as can be: the file may be edited while the arena runs

    @property
    def name(self) -> str:
        """A name of the catalogue, or module:Class: never the name that a subclass inherits."""
        cls = resolve(self.mixer)
        return cls.name if cls in MIXERS.values() else self.typed or label(cls)

    @property
    def source(self) -> str:
        return source(resolve(self.mixer))

    def build(self, *, dim: int, num_heads: int, max_len: int) -> Mixer:
        return build(self.mixer, dim=dim, num_heads=num_heads, max_len=max_len, **self.options)

    def sketch(self, *, dim: int = 24, num_heads: int = 3, max_len: int = 64) -> Mixer:
        """On the meta device: what it can do, at no cost."""
        with torch.device("meta"):
            return self.build(dim=dim, num_heads=num_heads, max_len=max_len)

    def identity(self) -> dict[str, Any]:
        """The choice as a part of keys."""
        return {"mixer": self.name, "options": dict(self.options), "source": self.source}

    def refusal(self, sketch: Mixer, needed: str) -> str | None:
        """Why its sketch lacks the capability `needed`, or None."""
        reason = sketch.capabilities.refusals().get(needed)
        return None if reason is None else f"{self.name} does not support {needed}: {reason}"


def check_entries(choices: Iterable[Choice]) -> None:
    """OptionError where two of them would be shown under one label."""
    seen: set[tuple[str, str]] = set()
    for choice in choices:
        said = ", ".join(f"{name}={value}" for name, value in sorted(choice.options.items()))
        if (choice.name, said) in seen:
            raise OptionError(
                f"{choice.name}{f' ({said})' if said else ''} cannot be entered twice: its results would share a label. "
                "Leave one out, or give it another name."
            )
        seen.add((choice.name, said))
