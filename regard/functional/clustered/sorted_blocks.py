"""Blocks of an order: sorted queries, the slices of sorted keys that they meet, and which of these pairs are allowed.

A pair that is not allowed has FAR taken from its score. How many conditions it fails is counted in floating point, in
the tensor that the product of queries and keys is then added to: no truth values, no selections, no fresh tensors.
Results of all rounds are written in their sorted orders, and a token's are fetched and added in one go.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.functional.shared.blocks import near

# Of a thread, held at once: a tensor of scores is 0.5 MiB, and stays in the cache.
PAIRS_ON_CPU = 1 << 17
PAIRS_ELSEWHERE = 1 << 25
FAR = 1e30  # a few times that is a float32 still


class Rules(NamedTuple):
    block: int
    before: int
    after: int
    shift: float
    reach: float
    exclude_self: bool
    count_once: bool
    causal: bool


class Ready:
    """Memory that is used again by name: on a CPU fresh memory costs more than most of what is computed in it."""

    def __init__(self, near: bool):
        self.near = near
        self.held: dict[tuple[str, torch.dtype], Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor:
        if not self.near:
            return like.new_empty(shape)
        size, key = math.prod(shape), (name, like.dtype)
        if key not in self.held or self.held[key].numel() < size:
            self.held[key] = like.new_empty(size)
        return self.held[key][:size].view(shape)


class Plan:
    """N rows, batch x heads, of which some are taken at once: on a CPU one, whose tensors stay in the cache.

    They lie on one line: `before` empty blocks, the blocks of a row, `after` empty ones, and so on with the next row.
    Absent keys stand where nobody reaches; an empty rank is a token that stands nowhere and asks nobody.
    """

    def __init__(
        self,
        source: Int[Tensor, "N R T"],
        place: Float[Tensor, "N R T"],
        valid: Bool[Tensor, "N T"] | None,
        pairwise: Bool[Tensor, "B H T T"] | None,
        rules: Rules,
        width: int,
    ):
        self.N, R, self.T = source.shape
        self.near = near(source)
        self.ready, self.rules, self.pairwise = Ready(self.near), rules, pairwise
        self.c, self.ahead = rules.block, rules.before * rules.block
        self.blocks, self.slices = -(-self.T // self.c), rules.before + 1 + rules.after
        room = PAIRS_ON_CPU * torch.get_num_threads() if self.near else PAIRS_ELSEWHERE
        self.at_once = max(1, room // (self.c**2 * self.slices))
        few = room // (4 * R * self.T * width)  # their sums are a fourth of the pairs at most
        self.rows_at_once = max(1, min(self.at_once // self.blocks, few))
        source, place = source.transpose(0, 1), place.transpose(0, 1)
        self.asks = (place + rules.shift).contiguous()
        self.stands = place.contiguous() if valid is None else place.masked_fill(~valid, math.inf)
        ends = self.ahead, self.blocks * self.c - self.T + rules.after * self.c
        self.sorted_asks = F.pad(self.asks.gather(2, source), ends, value=-math.inf)
        self.sorted_stands = F.pad(self.stands.gather(2, source), ends, value=math.inf)
        self.tokens = F.pad(source, ends)
        ranks = torch.arange(self.T, device=source.device) + self.ahead
        self.rank = source.new_empty(source.shape).scatter_(2, source, ranks.expand_as(source))

    def lines(self) -> Iterator["Line"]:
        for start in range(0, self.N, self.rows_at_once):
            yield Line(self, slice(start, min(start + self.rows_at_once, self.N)))


class Line:
    """Some rows, their tokens numbered through, in each of the rounds."""

    def __init__(self, plan: Plan, rows: slice):
        self.plan, self.rows = plan, rows
        n, (self.R, _, length) = rows.stop - rows.start, plan.tokens.shape
        self.total = n * (length // plan.c)
        self.windows = self.total - plan.slices + 1
        row = torch.arange(n, device=plan.tokens.device)[:, None]
        self.tokens = (plan.tokens[:, rows] + plan.T * row).flatten(1)
        first = torch.arange(self.R, device=row.device)[:, None, None] * (n * length)
        self.places = (plan.rank[:, rows] + (length * row + first)).flatten(1).t().contiguous()

    def rounds(self) -> Iterator["Round"]:
        for r in range(self.R):
            yield Round(self, r)

    def sums(self, name: str, like: Tensor, width: int) -> Float[Tensor, "R G c V"]:
        """For a result of each rank in each round, block by block."""
        return self.plan.ready(name, like, self.R, self.total, self.plan.c, width)

    def of_tokens(
        self, sums: Float[Tensor, "R G c V"], dtype: torch.dtype
    ) -> Float[Tensor, "nT V"]:
        """Each token's results of all rounds, added."""
        rows = sums.flatten(0, 2).to(dtype)
        if self.R == 1:
            return rows.index_select(0, self.places.flatten())
        return F.embedding_bag(self.places, rows, mode="sum")

    def each_of_tokens(self, sums: Float[Tensor, "R G c"]) -> Float[Tensor, "nT R"]:
        return sums.flatten()[self.places]


class Round:
    """Places of queries and keys in this round and in earlier ones, in this round's order."""

    def __init__(self, line: Line, r: int):
        self.plan, self.line, self.r, rows = line.plan, line, r, line.rows
        plan, rules = line.plan, line.plan.rules
        self.tokens = line.tokens[r]
        asks, stands = (
            [sorted_[r, rows].flatten()]
            + [
                z[s, rows].flatten().index_select(0, self.tokens)
                for s in range(r if rules.count_once else 0)
            ]
            for sorted_, z in ((plan.sorted_asks, plan.asks), (plan.sorted_stands, plan.stands))
        )
        self.asks = [z[plan.ahead :].view(-1, plan.c, 1) for z in asks]
        self.stands = [z.unfold(0, plan.slices * plan.c, plan.c)[:, None] for z in stands]

    def parts(self) -> Iterator["Part"]:
        size = self.plan.at_once
        for start in range(0, self.line.windows, size):
            yield Part(self, start, min(start + size, self.line.windows))


class Part:
    """Blocks `start` to `stop`: g blocks of c queries, of which each meets the w keys of its window."""

    def __init__(self, round_: Round, start: int, stop: int):
        self.round, self.plan, self.rules = round_, round_.plan, round_.plan.rules
        self.ready, self.c, slices = self.plan.ready, self.plan.c, self.plan.slices
        self.g, self.w, self.windows = stop - start, slices * self.c, slice(start, stop)
        before = self.rules.before
        self.blocks = round_.r, slice(start + before, stop + before)
        self._keys = slice(start * self.c, (stop + slices - 1) * self.c)
        first = start * self.c + self.plan.ahead
        self._queries = slice(first, first + self.g * self.c)

    def of_queries(self, z: Float[Tensor, "nT K"], name: str) -> Float[Tensor, "g c K"]:
        rows = rows_of(self.ready, z, self.round.tokens[self._queries], name)
        return rows.view(self.g, self.c, -1)

    def of_keys(self, z: Float[Tensor, "nT K"], name: str) -> Float[Tensor, "g w K"]:
        """Windows overlap, and are views of what is fetched once."""
        rows = rows_of(self.ready, z, self.round.tokens[self._keys], name)
        return rows.unfold(0, self.w, self.c).transpose(1, 2)

    def add_to_keys(
        self, to: Float[Tensor, "R G c K"], a: Float[Tensor, "g c w"], b: Float[Tensor, "g c K"]
    ) -> None:
        """a^T b, each slice of a window to its own block of sorted keys; the last slice is the first to come to a block."""
        to, last, start = to[self.round.r], self.plan.slices - 1, self.windows.start
        if start == 0:
            to[:last] = 0
        for s in range(last, -1, -1):
            some = a[:, :, s * self.c : (s + 1) * self.c].transpose(1, 2)
            to[start + s : start + s + self.g].baddbmm_(some, b, beta=int(s < last))

    def far(self) -> Float[Tensor, "g c w"]:
        """How many of the conditions a pair fails: near in this round, in no earlier one, no later token, .."""
        rules = self.rules
        earlier = len(self.round.asks) - 1
        if earlier:
            nearest = self._distance(1, "pairs")
            for s in range(2, earlier + 1):
                torch.minimum(nearest, self._distance(s, "far"), out=nearest)
        far = self._distance(0, "far").gt_(rules.reach)
        if earlier:
            far += nearest.le_(rules.reach)
        if rules.exclude_self:
            far.diagonal(self.plan.ahead, 1, 2).fill_(1)
        if rules.causal or self.plan.pairwise is not None:
            i = self.round.tokens[self._queries].view(-1, self.c, 1)
            j = self.round.tokens[self._keys].unfold(0, self.w, self.c)[:, None]
            if rules.causal:
                far += j > i
            if self.plan.pairwise is not None:
                far += ~self._pairs_at(i, j)
        return far

    def _distance(self, s: int, name: str) -> Float[Tensor, "g c w"]:
        asks, stands = (z[s][self.windows] for z in (self.round.asks, self.round.stands))
        out = self.ready(name, asks, self.g, self.c, self.w)
        return torch.sub(stands, asks, out=out).abs_()

    def _pairs_at(self, i: Tensor, j: Tensor) -> Bool[Tensor, "g c w"]:
        pairwise = self.plan.pairwise
        assert pairwise is not None
        H, T = pairwise.shape[1:3]
        n = self.round.line.rows.start + i // T
        return pairwise[n // H, n % H, i % T, j % T]


def rows_of(ready: Ready, z: Float[Tensor, "n K"], index: Int[Tensor, "m"], name: str) -> Tensor:
    if not ready.near:
        return z.index_select(0, index)
    return torch.index_select(z, 0, index, out=ready(name, z, index.shape[0], z.shape[1]))


def wide_type(z: Tensor) -> torch.dtype:
    return torch.promote_types(z.dtype, torch.float32)
