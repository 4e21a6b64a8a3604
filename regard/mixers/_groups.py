"""Groups of heads of unlike mechanisms: what a group is, and what several say together of what they can do."""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

from regard.core import Capabilities, CheckedOptions, Mixer, No, OptionError, Options
from regard.mixers.build import build
from regard.nn.given_heads import with_given_heads


@dataclass(frozen=True)
class HeadGroup(metaclass=CheckedOptions):
    """A number of heads of one mechanism; options are the mixer's own."""

    mixer: str | type[Mixer]
    num_heads: int
    options: Options = field(default_factory=dict)


WHOLE = {"dim", "num_heads", "max_len"}
"""Options that groups have from the whole."""


def made(group: HeadGroup, head_dim: int, max_len: int | None) -> Any:
    """The group's mixer, for heads that are given."""
    for fact in group.options.keys() & WHOLE:
        raise OptionError(f"head_groups: the options of {group.mixer} must not hold {fact}")
    H = group.num_heads
    own = build(group.mixer, dim=H * head_dim, num_heads=H, max_len=max_len, **group.options)
    mixer: Any = with_given_heads(own)
    heads = mixer.heads
    if (heads.num_kv_heads, heads.key_dim, heads.value_dim) != (H, head_dim, head_dim):
        raise OptionError(
            f"head_groups: {own.name} must have as many heads of keys as of queries, {head_dim} channels each"
        )
    return mixer


def told(group: HeadGroup, mixer: Any) -> HeadGroup:
    """The group with all of its options, defaults included, but those of the whole."""
    own = {name: value for name, value in mixer.options.items() if name not in WHOLE}
    return replace(group, options=own)


def together(members: Sequence[tuple[str, Capabilities]]) -> Capabilities:
    """Capabilities that all groups share; a No names the first group without it."""
    joint: Any = {}
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
    joint |= {"positions": frozenset({"absolute"}), "approximates": None}
    joint["exchange"] = No("its groups exchange unlike things")
    return Capabilities(**joint)
