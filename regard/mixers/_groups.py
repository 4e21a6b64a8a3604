"""Groups of heads of unlike mechanisms: what a group is, and what several say together of what they can do."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any

from regard.core import Capabilities, Mixer, No


@dataclass(frozen=True)
class HeadGroup:
    """So many heads of one mechanism; options are the mixer's own."""

    mixer: str | type[Mixer]
    num_heads: int
    options: Mapping[str, Any] = field(default_factory=dict)


def together(members: Sequence[tuple[str, Capabilities]]) -> Capabilities:
    """Capabilities that all groups share; a No names the first group without it."""
    joint: dict[str, Any] = {}
    for name in (f.name for f in fields(Capabilities)):
        answers = [(who, getattr(can, name)) for who, can in members]
        refusal = next((one for one in answers if isinstance(one[1], No)), None)
        if refusal is not None:
            joint[name] = No(f"its {refusal[0]} heads: {refusal[1].reason}")
        elif name in ("time", "memory", "state"):
            joint[name] = " + ".join(dict.fromkeys(a for _, a in answers if a)) or None
        elif name == "streaming":
            joint[name] = "segment" if any(a == "segment" for _, a in answers) else "exact"
        else:
            joint[name] = answers[0][1]
    joint["positions"], joint["approximates"] = frozenset({"absolute"}), None
    return Capabilities(**joint)
