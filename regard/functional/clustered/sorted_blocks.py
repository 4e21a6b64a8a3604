"""Blocks of sorted queries, the slices of sorted keys that they see, and which of these pairs are allowed.

A pair that is not allowed has FAR taken from its score. How many conditions it fails is counted in floating point, in
the tensor that the product of queries and keys is then added to: no truth values, no selections, no fresh tensors.
Results of all rounds are written in their sorted orders, and a token's are fetched and added in one go.
"""

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.functional.clustered.order import Reach
from regard.functional.shared.blocks import Workspace, tiles
from regard.functional.shared.implementation import Cut

FAR = 1e30  # a few times that is a float32 still


class Rules(NamedTuple):
    exclude_self: bool
    count_once: bool
    causal: bool


class SortedRows:
    """Some rows of batch x heads: all their tokens, numbered through, in the sorted order of each round.

    In blocks of c tokens: `before` empty blocks, the blocks of a row, `after` empty ones, then the next row. No query
    sees an absent key, and the token of an empty place sees nothing.
    """

    def __init__(
        self,
        rows: slice,
        source: Int[Tensor, "N R T"],
        place: Float[Tensor, "N R T"],
        valid: Bool[Tensor, "N T"] | None,
        pairwise: Bool[Tensor, "B H T T"] | None,
        reach: Reach,
        rules: Rules,
        work: Workspace,
        blocks_at_once: int,
    ):
        self.rows, self.pairwise, self.reach, self.rules = rows, pairwise, reach, rules
        self.work, self.blocks_at_once, self.c = work, blocks_at_once, reach.block
        source, place = source[rows].transpose(0, 1), place[rows].transpose(0, 1)
        self.R, n, T = source.shape
        self.ahead, self.slices = reach.before * self.c, reach.before + 1 + reach.after
        ends = self.ahead, -T % self.c + reach.after * self.c
        length = T + sum(ends)
        self.total = n * (length // self.c)
        row = torch.arange(n, device=source.device)[:, None]
        self.tokens = (F.pad(source, ends) + T * row).flatten(1)
        ranks = torch.arange(T, device=row.device) + self.ahead
        rank = torch.empty_like(source).scatter_(2, source, ranks.expand_as(source))
        first = torch.arange(self.R, device=row.device)[:, None, None] * (n * length)
        self.places = (rank + length * row + first).flatten(1).t().contiguous()
        queries = place + reach.shift
        keys = place if valid is None else place.masked_fill(~valid[rows], torch.inf)
        self.queries, self.keys = queries.flatten(1), keys.flatten(1)
        self.sorted_queries, self.sorted_keys = (
            F.pad(z.gather(2, source), ends, value=nowhere).flatten(1)
            for z, nowhere in ((queries, -torch.inf), (keys, torch.inf))
        )

    def tiles(self) -> Iterator["SortedTile"]:
        """Those of all rounds. Places are those of this round and, if pairs count once, of the rounds before."""
        for r in range(self.R):
            tokens, before = self.tokens[r], r if self.rules.count_once else 0
            queries, keys = (
                [own[r]] + [z[s].index_select(0, tokens) for s in range(before)]
                for own, z in ((self.sorted_queries, self.queries), (self.sorted_keys, self.keys))
            )
            queries = [z[self.ahead :].view(-1, self.c, 1) for z in queries]
            keys = [z.unfold(0, self.slices * self.c, self.c)[:, None] for z in keys]
            for some in tiles(self.total - self.slices + 1, self.blocks_at_once):
                yield SortedTile(self, r, some, [z[some] for z in queries], [z[some] for z in keys])

    def results(self, name: str, like: Tensor, width: int) -> Float[Tensor, "R G c V"]:
        """Memory for a result of each sorted token in each round, block by block."""
        return self.work(name, like, self.R, self.total, self.c, width)

    def of_tokens(
        self, results: Float[Tensor, "R G c V"], dtype: torch.dtype
    ) -> Float[Tensor, "nT V"]:
        """Each token's results of all rounds, added."""
        rows = results.flatten(0, 2).to(dtype)
        if self.R == 1:
            return rows.index_select(0, self.places.flatten())
        return F.embedding_bag(self.places, rows, mode="sum")

    def each_of_tokens(self, results: Float[Tensor, "R G c"]) -> Float[Tensor, "nT R"]:
        return results.flatten()[self.places]


class SortedTile:
    """g blocks of c queries, each with the w keys of its window, in round r."""

    def __init__(
        self, of: SortedRows, r: int, some: slice, queries: list[Tensor], keys: list[Tensor]
    ):
        self.of, self.r, self.windows, self.work, self.c = of, r, some, of.work, of.c
        self.g, self.w = some.stop - some.start, of.slices * of.c
        self.blocks = r, slice(some.start + of.reach.before, some.stop + of.reach.before)
        first = some.start * of.c
        self.query_tokens = of.tokens[r, first + of.ahead :][: self.g * of.c]
        self.key_tokens = of.tokens[r, first : (some.stop + of.slices - 1) * of.c]
        self.query_places, self.key_places = queries, keys

    def of_queries(self, name: str, z: Float[Tensor, "nT K"]) -> Float[Tensor, "g c K"]:
        return self.work.rows(name, z, self.query_tokens).view(self.g, self.c, -1)

    def of_keys(self, name: str, z: Float[Tensor, "nT K"]) -> Float[Tensor, "g w K"]:
        """Windows overlap, and are views of what is fetched once."""
        rows = self.work.rows(name, z, self.key_tokens)
        return rows.unfold(0, self.w, self.c).transpose(1, 2)

    def scores(
        self, q: Float[Tensor, "g c K"], k: Float[Tensor, "g w K"], wide: torch.dtype
    ) -> Float[Tensor, "g c w"]:
        """q k^T, far below all others where a pair is not allowed."""
        far = self._far()
        if far.dtype == q.dtype:
            return far.baddbmm_(q, k.mT, beta=-FAR)
        return self.work.product("products", q, k.mT).to(wide).sub_(far, alpha=FAR)

    def add_to_keys(
        self, to: Float[Tensor, "R G c K"], a: Float[Tensor, "g c w"], b: Float[Tensor, "g c K"]
    ) -> None:
        """a^T b, each slice of a window to its own block of sorted keys; the last slice is the first to reach a block."""
        to, last, start = to[self.r], self.of.slices - 1, self.windows.start
        if start == 0:
            to[:last] = 0
        for s in range(last, -1, -1):
            some = a[:, :, s * self.c : (s + 1) * self.c].transpose(1, 2)
            to[start + s : start + s + self.g].baddbmm_(some, b, beta=int(s < last))

    def _far(self) -> Float[Tensor, "g c w"]:
        """How many of the conditions a pair fails: near in this round, in no earlier one, no later token, .."""
        rules, reach = self.of.rules, self.of.reach
        earlier = range(1, len(self.query_places))
        nearest = None
        for s in earlier:
            distance = self._distance(s, "nearest" if nearest is None else "far")
            nearest = distance if nearest is None else torch.minimum(nearest, distance, out=nearest)
        far = self._distance(0, "far").gt_(reach.reach)
        if nearest is not None:
            far += nearest.le_(reach.reach)
        if rules.exclude_self:
            far.diagonal(self.of.ahead, 1, 2).fill_(1)
        if rules.causal or self.of.pairwise is not None:
            i = self.query_tokens.view(-1, self.c, 1)
            j = self.key_tokens.unfold(0, self.w, self.c)[:, None]
            if rules.causal:
                far += j > i
            if self.of.pairwise is not None:
                far += ~self._pairs_at(self.of.pairwise, i, j)
        return far

    def _distance(self, s: int, name: str) -> Float[Tensor, "g c w"]:
        queries, keys = self.query_places[s], self.key_places[s]
        out = self.work(name, queries, self.g, self.c, self.w)
        return torch.sub(keys, queries, out=out).abs_()

    def _pairs_at(self, pairwise: Bool[Tensor, "B H T T"], i: Tensor, j: Tensor) -> Tensor:
        H, T = pairwise.shape[1:3]
        n = self.of.rows.start + i // T
        return pairwise[n // H, n % H, i % T, j % T]


def sorted_rows(
    source: Int[Tensor, "N R T"],
    place: Float[Tensor, "N R T"],
    valid: Bool[Tensor, "N T"] | None,
    pairwise: Bool[Tensor, "B H T T"] | None,
    reach: Reach,
    rules: Rules,
    how: Cut,
    like: Float[Tensor, "N T V"],
) -> Iterator[SortedRows]:
    """How many rows fit at once: scores of their blocks into half of `cut.room`, their results into an eighth."""
    N, R, T = source.shape
    room, work = how.room // (2 * like.element_size()), Workspace(how)
    at_once = max(1, room // (reach.block**2 * (reach.before + 1 + reach.after)))
    few = room // max(1, 4 * R * T * like.shape[2])
    for rows in tiles(N, max(1, min(at_once // max(1, -(-T // reach.block)), few))):
        yield SortedRows(
            rows, source, place, valid, pairwise, reach, rules, work, blocks_at_once=at_once
        )
