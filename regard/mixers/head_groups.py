"""Heads of unlike mechanisms side by side: local beside routing (Roy et al. 2020, arXiv 2003.05997), softmax beside linear.

    y = concat( mechanism_1(q, k, v of the first heads), mechanism_2(of the next), .. ) W_out

`groups` holds a HeadGroup for each run of heads: any mixer that is a function of q, k and v, with its options. By default the
first half of the heads is local and the others are linear. What one group cannot do the whole cannot, with that group's reason.
Cost, memory and state: the sum over groups. The projections have no bias. No `num_kv_heads`, since groups have heads of keys of
their own; positions are the groups' options.

Args:
    groups: a HeadGroup for each run of heads; None: half local, half linear
"""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn

from regard.core import (
    OPEN,
    Context,
    Mask,
    Observation,
    OptionError,
    Scalar,
    Streamed,
    Tokens,
    UnsupportedError,
    as_state,
    bounded,
    check_request,
)
from regard.functional.cache import Lengths, advance
from regard.mixers._base import HeadsMixer
from regard.mixers._groups import HeadGroup, made, together, told
from regard.mixers.linear import Linear
from regard.mixers.local import Local
from regard.nn.given_heads import packed

Given = tuple[Tensor, Tensor | None, Mask]
"""x, context and mask that a group is called with."""


@as_state
class State(Streamed):
    parts: tuple  # the state of each group
    length: Lengths


class HeadGroups(HeadsMixer):
    __doc__ = __doc__
    name = "head_groups"
    family = "banded"
    paper = "Roy et al. 2020, arXiv 2003.05997"
    capabilities = together([("local", Local.capabilities), ("linear", Linear.capabilities)])
    variants = {
        "small": {"groups": (HeadGroup("local", 2, {"window_size": 2}), HeadGroup("linear", 1))},
        "softmax_linear": {"groups": (HeadGroup("softmax", 1), HeadGroup("linear", 2))},
        "local_routing": {
            "groups": (
                HeadGroup("local", 1, {"window_size": 2}),
                HeadGroup("routing", 2, {"num_clusters": 3, "window_size": 4}),
            )
        },
    }
    groups: Any  # ModuleList
    limits = {"softmax": ({"groups": (HeadGroup("softmax", 1), HeadGroup("softmax", 2))}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int | None = None,
        groups: Sequence[HeadGroup] | None = None,
    ):
        super().__init__(dim, num_heads, max_len=max_len)
        if groups is None:
            near = -(-num_heads // 2)
            groups = HeadGroup("local", near), HeadGroup("linear", num_heads - near)
            groups = groups if num_heads > 1 else groups[:1]
        counted = sum(group.num_heads for group in groups)
        if counted != num_heads:
            raise OptionError(
                f"head_groups: its groups have {counted} heads, and num_heads is {num_heads}"
            )
        self.groups = nn.ModuleList(made(group, self.heads.head_dim, max_len) for group in groups)
        self.sizes = [group.num_heads for group in groups]
        self.options = {**self.options, "groups": tuple(map(told, groups, self.groups))}
        self.capabilities = together([(m.name, m.capabilities) for m in self.groups])
        self.delay = max(member.delay for member in self.groups)

    @property
    def changes_after_step(self) -> bool:
        return any(member.changes_after_step for member in self.groups)

    @property
    def routed(self) -> list[Any]:
        """The groups that have centroids, and so a commitment loss."""
        return [m for m in self.groups if getattr(m, "routed", hasattr(m, "commitment_loss"))]

    def commitment_loss(self, x: Tokens, *, context: Context = None, mask: Mask = OPEN) -> Scalar:
        """Sum over the groups that have centroids. Raises UnsupportedError where none has."""
        if not self.routed:
            raise UnsupportedError(
                "head_groups does not support commitment_loss: none of its groups has centroids. Add one of routing."
            )
        check_request(self, x, context, mask)
        return sum(
            member.commitment_loss(own, context=its_context, mask=its_mask)
            for member, (own, its_context, its_mask) in self._given(x, context, mask)
            if member in self.routed
        )

    def _given(
        self, x: Tensor, context: Tensor | None, mask: Mask, after: Lengths | None = None
    ) -> Iterator[tuple[Any, Given]]:
        """Each member with what it is called with: its heads of q, k and v side by side, and its heads of the mask."""
        split = (
            [part.transpose(1, 2).flatten(2) for part in z.split(self.sizes, 1)]
            for z in self.heads.split(x, context, after)
        )
        masks = [mask] * len(self.sizes)
        if mask.pairwise is not None and mask.pairwise.shape[1] > 1:
            own = mask.pairwise.split(self.sizes, 1)
            masks = [replace(mask, pairwise=pairwise) for pairwise in own]
        for member, own, q, k, v in zip(self.groups, masks, *split, strict=True):
            if context is None:
                yield member, (packed(member, q, k, v), None, own)
            else:
                yield member, (packed(member, q), packed(member, None, k, v), own)

    def mix(self, x, context, mask):
        mixed = [m.mix(*given) for m, given in self._given(x, context, mask)]
        return self.heads.out(torch.cat(mixed, -1))

    def _mixed(self, x, context, mask, of=None):
        given = self._given(x, context, mask)
        return torch.cat([member._mixed(*own, of) for member, own in given], 1)

    def _merge(self, x, mixed):
        """mixed [B T H*V]: the outputs of all groups, side by side."""
        return self.heads.out(mixed)

    def _start(self, length, max_len):
        states = [m._initial_state(len(length), max_len, None, None) for m in self.groups]
        return State(tuple(states), length)

    def _step(self, x, state, valid, donate):
        parts = [bounded(part, state.most) for part in state.parts]
        mixed, states = self._extended(x, parts, state.length, valid, donate)
        return mixed, State(states, advance(state.length, valid, x.shape[1]))

    def _extended(self, x, parts, after=None, valid=None, donate=False):
        """What the groups give for the next tokens, and their states."""
        given = zip(self._given(x, None, OPEN, after), parts, strict=True)
        done = (m._extend(own, part, valid, donate) for (m, (own, *_)), part in given)
        mixed, states = zip(*done, strict=True)
        return torch.cat(mixed, -1), states

    def _keep(self, context, valid):
        given = self._given(context[:, :0], context, OPEN)
        return tuple(m._initial_state(len(context), None, own, valid) for m, (_, own, _) in given)

    def _read(self, x, kept, at):
        return self._extended(x, [replace(part, length=at[:, 0]) for part in kept])[0]

    def _observe(self, x, context, mask):
        seen = (m._observe(*given) for m, given in self._given(x, context, mask))
        parts = zip(*seen, strict=True)
        return Observation(
            *(None if any(part is None for part in z) else torch.cat(z, 1) for z in parts)
        )

    def _plan(self, x, context, mask):
        plans = ((m._plan(*given) or {}) for m, given in self._given(x, context, mask))
        return {f"{i}.{k}": z for i, plan in enumerate(plans) for k, z in plan.items()} or None
