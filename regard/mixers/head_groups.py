"""Heads of unlike mechanisms side by side: local beside routing (Roy et al. 2020, arXiv 2003.05997), softmax beside linear.

    y = concat( mechanism_1(q, k, v of the first heads), mechanism_2(of the next), .. ) W_out

`groups` holds a HeadGroup for each run of heads: any mixer that is a function of q, k and v, with its options. By default the
first half of the heads is local and the others are linear. What one group cannot do the whole cannot, with that group's reason.
Cost, memory and state: the sum over groups. The projections have no bias. No `num_kv_heads`, since groups have heads of keys of
their own; positions are the groups' options.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from regard.core import Capabilities, Mask, Mixer, No, Observation, OptionError, UnsupportedError
from regard.core.mask import OPEN
from regard.core.request import check_request
from regard.core.states import Streamed, as_state, bounded
from regard.functional.cache import advance
from regard.mixers.build import build, resolve
from regard.mixers.linear import Linear
from regard.mixers.local import Local
from regard.nn.given_heads import GivenHeads, with_given_heads
from regard.nn.heads import Heads, HeadsMixer


@dataclass(frozen=True)
class HeadGroup:
    """So many heads of one mechanism; options are the mixer's own."""

    mixer: str | type[Mixer]
    num_heads: int
    options: Mapping[str, Any] = field(default_factory=dict)


@as_state
class State(Streamed):
    parts: tuple[Any, ...]  # the state of each group
    length: Int[Tensor, "B"]


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


class HeadGroups(HeadsMixer):
    __doc__ = __doc__
    name = "head_groups"
    family = "banded"
    paper = "Roy et al. 2020, arXiv 2003.05997"
    capabilities = together([("local", Local.capabilities), ("linear", Linear.capabilities)])
    variants = {
        "small": {
            "groups": (HeadGroup("local", 2, {"window_size": 2}), HeadGroup("linear", 1)),
        },
        "softmax_linear": {"groups": (HeadGroup("softmax", 1), HeadGroup("linear", 2))},
        "local_routing": {
            "groups": (
                HeadGroup("local", 1, {"window_size": 2}),
                HeadGroup("routing", 2, {"num_clusters": 3, "window_size": 4}),
            )
        },
    }
    limits = {"softmax": ({"groups": (HeadGroup("softmax", 1), HeadGroup("softmax", 2))}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        groups: Sequence[HeadGroup] | None = None,
    ):
        super().__init__(dim, max_len=max_len)
        self.num_heads = num_heads
        self.heads = Heads(dim, num_heads)
        groups = _default(num_heads) if groups is None else tuple(groups)
        counted = sum(group.num_heads for group in groups)
        if counted != num_heads:
            raise OptionError(
                f"head_groups: its groups have {counted} heads, and num_heads is {num_heads}"
            )
        self.groups = nn.ModuleList(self._member(group) for group in groups)
        self.sizes = [group.num_heads for group in groups]
        whole = tuple(
            replace(group, options=_told(member))
            for group, member in zip(groups, self._members, strict=True)
        )
        self.options = {**self.options, "groups": whole}
        self.capabilities = together([(m.name, m.capabilities) for m in self._members])
        self.delay = max(member.delay for member in self._members)

    def _member(self, group: HeadGroup) -> Mixer:
        for fact in dict(group.options).keys() & {"dim", "num_heads", "max_len"}:
            raise OptionError(f"head_groups: the options of {group.mixer} must not hold {fact}")
        cls = resolve(group.mixer)
        width = group.num_heads * self.heads.head_dim
        made = build(
            cls, dim=width, num_heads=group.num_heads, max_len=self.max_len, **group.options
        )
        member = with_given_heads(made)
        heads = member.heads
        assert isinstance(heads, GivenHeads)
        if heads.num_kv_heads != group.num_heads:
            raise OptionError(
                f"head_groups: {member.name} must have as many heads of keys as of queries"
            )
        return member

    @property
    def _members(self) -> list[Any]:
        return list(self.groups)

    @property
    def routed(self) -> bool:
        """True if a group has centroids, and so a commitment loss."""
        return any(hasattr(member, "commitment_loss") for member in self._members)

    def commitment_loss(
        self,
        x: Float[Tensor, "B T D"],
        *,
        context: Float[Tensor, "B S D"] | None = None,
        mask: Mask = OPEN,
    ) -> Float[Tensor, ""]:
        """Sum over the groups that have centroids. Raises UnsupportedError where none has."""
        if not self.routed:
            raise UnsupportedError(
                "head_groups does not support commitment_loss: none of its groups has centroids. Add one of routing."
            )
        check_request(self, x, context, mask)
        total = x.new_zeros(())
        for member, given in self._given(x, context, mask):
            if hasattr(member, "commitment_loss"):
                total = total + member.commitment_loss(
                    given.x, context=given.context, mask=given.mask
                )
        return total

    def _given(self, x: Tensor, context: Tensor | None, mask: Mask):
        """Each member with what it is called with: its heads of q, k and v side by side, and its heads of the mask."""
        q, k, v = (
            [_beside(part) for part in z.split(self.sizes, dim=1)]
            for z in self.heads.split(x, context)
        )
        first = 0
        for i, (member, size) in enumerate(zip(self._members, self.sizes, strict=True)):
            pack = member.heads.pack
            own, pairwise = mask, mask.pairwise
            if pairwise is not None and pairwise.shape[1] > 1:
                own = replace(mask, pairwise=pairwise[:, first : first + size])
            if context is None:
                yield member, _Given(pack(q[i], k[i], v[i]), None, own)
            else:
                yield member, _Given(pack(q[i]), pack(None, k[i], v[i]), own)
            first += size

    def _mixed(self, x, context, mask):
        return self._heads(m.mix(*given) for m, given in self._given(x, context, mask))

    def _heads(self, mixed: Iterable[Tensor]) -> Float[Tensor, "B H T V"]:
        """The outputs of all groups, each [B T h*V]."""
        return torch.cat(list(mixed), dim=-1).unflatten(2, (self.num_heads, -1)).transpose(1, 2)

    def _initial_state(self, batch_size, max_len, context, valid):
        given: list[Tensor | None] = [None] * len(self.sizes)
        if context is not None:
            k, v = (
                [_beside(part) for part in z.split(self.sizes, dim=1)]
                for z in (self.heads.keys(context), self.heads.values(context))
            )
            members = enumerate(self._members)
            given = [member.heads.pack(None, k[i], v[i]) for i, member in members]
        states = [
            member._initial_state(batch_size, max_len, own, valid)
            for member, own in zip(self._members, given, strict=True)
        ]
        weight = self.heads.value.weight
        return State(tuple(states), torch.zeros(batch_size, dtype=torch.long, device=weight.device))

    def _extend(self, x, state, valid, donate):
        mixed, states = [], []
        parts = zip(self._given(x, None, OPEN), state.parts, strict=True)
        for (member, given), own in parts:
            y, after = member._extend(given.x, bounded(own, state.most), valid, donate)
            mixed.append(y)
            states.append(after)
        y = self.heads.merge(self._heads(mixed))
        return y, State(tuple(states), advance(state.length, valid, x.shape[1]))

    def _observe(self, x, context, mask):
        seen = [m._observe(*given) for m, given in self._given(x, context, mask)]
        found: dict[str, Tensor | None] = {}
        for name in Observation._fields:
            parts = [getattr(one, name) for one in seen]
            found[name] = None if any(p is None for p in parts) else torch.cat(parts, dim=1)
        return Observation(**found)

    def _plan(self, x, context, mask):
        plans: dict[str, Tensor] = {}
        for i, (member, given) in enumerate(self._given(x, context, mask)):
            own = member._plan(given.x, given.context, given.mask) or {}
            plans |= {f"{i}.{name}": value for name, value in own.items()}
        return plans or None


def _told(member: Mixer) -> dict[str, Any]:
    """All options of a group, defaults included; what the whole has is left out."""
    whole = ("dim", "num_heads", "max_len")
    return {name: value for name, value in member.options.items() if name not in whole}


class _Given(NamedTuple):
    x: Tensor
    context: Tensor | None
    mask: Mask


def _default(num_heads: int) -> tuple[HeadGroup, ...]:
    near = -(-num_heads // 2)
    groups = (HeadGroup("local", near), HeadGroup("linear", num_heads - near))
    return groups if num_heads > 1 else groups[:1]


def _beside(z: Float[Tensor, "B h T K"]) -> Float[Tensor, "B T h*K"]:
    return z.transpose(1, 2).flatten(2)
