"""Blocks of an order: sorted queries, the slices of sorted keys that they meet, and which of these pairs are allowed.

A pair that is not allowed has FAR taken from its score. How many conditions it fails is counted in floating point, in
the tensor that the product of queries and keys is then added to: no truth values, no selections, no fresh tensors.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.functional.exponential import LOG2_E
from regard.functional.rows import rows_at

PAIRS_ON_CPU = 1 << 17  # held at once: a tensor of scores is 0.5 MiB, and stays in the cache
PAIRS_ELSEWHERE = 1 << 25
FAR = 1e30  # a few times that is a float32 still


class Rules(NamedTuple):
    block: int
    before: int
    after: int
    reach: float
    exclude_self: bool
    count_once: bool
    causal: bool


@dataclass(frozen=True, eq=False)
class Plan:
    """N rows, batch x heads, of which `rows` are taken at once; their blocks are one axis G, taken in parts."""

    source: Int[Tensor, "N R T"]
    asks: Float[Tensor, "N R T"]
    stands: Float[Tensor, "N R T"]
    pairwise: Bool[Tensor, "B H T T"] | None
    rules: Rules

    @property
    def blocks(self) -> int:
        """Of one row."""
        return -(-self.source.shape[2] // self.rules.block)

    @property
    def padded(self) -> int:
        """The length in whole blocks; ranks beyond the last token belong to nobody, and nobody reaches them."""
        return self.blocks * self.rules.block

    @property
    def at_once(self) -> int:
        """Blocks that are taken at once."""
        near = self.source.device.type in ("cpu", "meta") and not torch.compiler.is_compiling()
        pairs = self.rules.block**2 * (self.rules.before + 1 + self.rules.after)
        return max(1, (PAIRS_ON_CPU if near else PAIRS_ELSEWHERE) // pairs)

    @property
    def rows(self) -> int:
        """A divisor of N, so that all groups of rows are alike."""
        N = self.source.shape[0]
        most = min(N, max(1, self.at_once // self.blocks))
        return next((n for n in range(most, 1, -1) if N % n == 0), 1)

    def groups(self) -> Iterator[slice]:
        for start in range(0, self.source.shape[0], self.rows):
            yield slice(start, start + self.rows)

    def parts(self) -> Iterator[slice]:
        end = self.rows * self.blocks
        for start in range(0, end, self.at_once):
            yield slice(start, min(start + self.at_once, end))

    def round(self, rows: slice, r: int) -> "Round":
        return Round(self, rows, r)


class Round:
    """One round of some rows, sorted."""

    def __init__(self, plan: Plan, rows: slice, r: int):
        self.plan, self.rows, self.rules = plan, rows, plan.rules
        source = plan.source[rows, r].long()
        T, rules = source.shape[1], plan.rules
        self._ahead, rest = rules.before * rules.block, plan.padded - T
        self._room = (
            self._ahead,
            rest + rules.after * rules.block,
        )  # ranks of nobody: token 0's rows
        self._source, self._rest = source, rest
        self._queries, self._keys = F.pad(source, (0, rest)), F.pad(source, self._room)
        rounds = range(r + 1) if rules.count_once else (r,)
        places = [[z[rows, s].gather(1, source) for s in rounds] for z in (plan.asks, plan.stands)]
        self._asks = [self._blocks(F.pad(z, (0, rest)))[..., None] for z in places[0]]
        self._stands = [
            self._windows(F.pad(z, self._room, value=math.inf))[:, None] for z in places[1]
        ]

    def queries(self, z: Float[Tensor, "N T K"]) -> Float[Tensor, "G c K"]:
        return self._blocks(rows_at(z[self.rows], self._queries))

    def keys(self, z: Float[Tensor, "N T K"]) -> Float[Tensor, "G w K"]:
        """The keys that each block meets."""
        return self._windows(rows_at(z[self.rows], self._keys))

    def numbers(self, z: Float[Tensor, "n T"], nobody: float) -> Float[Tensor, "G c 1"]:
        z = F.pad(z.gather(1, self._source), (0, self._rest), value=nobody)
        return self._blocks(z)[..., None]

    def scores(
        self,
        queries: Float[Tensor, "g c K"],
        keys: Float[Tensor, "g w K"],
        some: slice,
        scale: float,
    ) -> Float[Tensor, "g c w"]:
        """scale q k^T, in base 2 and at least in float32; far below all others where a pair is not allowed."""
        far, scale = self._far(some), scale * LOG2_E
        wide = torch.promote_types(queries.dtype, torch.float32)
        if far.dtype == queries.dtype:
            return far.baddbmm_(queries, keys.transpose(1, 2), beta=-FAR, alpha=scale)
        scores = (queries @ keys.transpose(1, 2)).to(wide).mul_(scale)
        return scores.sub_(far, alpha=FAR)

    def add(self, part: Float[Tensor, "g w K"], some: slice, *, to: Float[Tensor, "n l K"]) -> None:
        """The transpose of `keys`: each slice of a window goes to its own block of sorted keys."""
        block, n = self.rules.block, to.shape[0]
        slices = part.unflatten(1, (-1, block)).unflatten(0, (n, -1)).unbind(2)
        blocks = to.unflatten(1, (-1, block))
        for start, part_of in enumerate(slices, start=some.start):
            blocks[:, start : start + part_of.shape[1]] += part_of

    def _far(self, some: slice) -> Float[Tensor, "g c w"]:
        """How many of the conditions a pair fails: near in this round, in no earlier one, no later token, .."""
        rules = self.rules
        far = self._distance(-1, some).gt_(rules.reach)
        if len(self._asks) > 1:
            nearest = self._distance(0, some)
            for r in range(1, len(self._asks) - 1):
                torch.minimum(nearest, self._distance(r, some), out=nearest)
            far += nearest.le_(rules.reach)
        if rules.exclude_self:
            far.diagonal(self._ahead, 1, 2).fill_(1)
        if rules.causal or self.plan.pairwise is not None:
            i, j = self._blocks(self._queries)[some, :, None], self._windows(self._keys)[some, None]
            if rules.causal:
                far += j > i
            if self.plan.pairwise is not None:
                far += ~self._pairs_at(i, j, some)
        return far

    def _distance(self, r: int, some: slice) -> Float[Tensor, "g c w"]:
        return (self._stands[r][some] - self._asks[r][some]).abs_()

    def _pairs_at(self, i: Tensor, j: Tensor, some: slice) -> Bool[Tensor, "g c w"]:
        pairwise = self.plan.pairwise
        assert pairwise is not None
        n = torch.arange(self.rows.start, self.rows.stop, device=i.device)
        n = n.repeat_interleave(self.plan.blocks)[some, None, None]
        H = pairwise.shape[1]
        return pairwise[n // H, n % H, i, j]

    def _blocks(self, z: Tensor) -> Tensor:
        """[n L ..] -> [G c ..]"""
        return z.unflatten(1, (-1, self.rules.block)).flatten(0, 1)

    def _windows(self, z: Tensor) -> Tensor:
        """[n l ..] -> [G w ..], of one row as a view."""
        width = (self.rules.before + 1 + self.rules.after) * self.rules.block
        seen = z.unfold(1, width, self.rules.block)
        return (seen if z.dim() == 2 else seen.transpose(2, 3)).flatten(0, 1)
