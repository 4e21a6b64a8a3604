"""Choice: a mechanism with its options, as a suite lists it."""

import hashlib
import inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from regard.core import Mixer
from regard.mixers.build import build, resolve


@dataclass(frozen=True, kw_only=True)
class Choice:
    """`mixer` is a catalogue name or a class; `options` are its own."""

    mixer: str | type[Mixer]
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        return resolve(self.mixer).name

    def build(self, *, dim: int, num_heads: int, max_len: int) -> Mixer:
        return build(self.mixer, dim=dim, num_heads=num_heads, max_len=max_len, **self.options)

    def sketch(self, *, dim: int = 24, num_heads: int = 3, max_len: int = 64) -> Mixer:
        """On the meta device: what it can do, at no cost."""
        with torch.device("meta"):
            return self.build(dim=dim, num_heads=num_heads, max_len=max_len)

    def identity(self) -> dict[str, Any]:
        """The choice as a part of keys; a class from elsewhere counts with the source of its file."""
        cls = resolve(self.mixer)
        return {"mixer": self.name, "options": dict(self.options)} | own_source(cls)


def own_source(cls: type) -> dict[str, str]:
    """Name of a class from elsewhere, and the checksum of its file, for keys; nothing for a class of Regard."""
    if cls.__module__.startswith("regard."):
        return {}
    try:
        source = Path(inspect.getfile(cls)).read_bytes()
    except (OSError, TypeError):  # typed in at a prompt
        source = b""
    return {
        "class": f"{cls.__module__}.{cls.__qualname__}",
        "source": hashlib.sha256(source).hexdigest(),
    }


def refusal(mixer: Mixer, needed: str) -> str | None:
    """Why this mixer lacks the capability `needed`, or None."""
    reason = mixer.capabilities.refusals().get(needed)
    return None if reason is None else f"{mixer.name} does not support {needed}: {reason}"
