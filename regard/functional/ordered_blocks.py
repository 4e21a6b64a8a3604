"""Blocks of an order: sorted queries, the slices of sorted keys that they meet, and which of these pairs are allowed.

A pair that is not allowed has FAR taken from its score. How many conditions it fails is counted in floating point, in
the tensor that the product of queries and keys is then added to: no truth values, no selections, no fresh tensors.
"""

import math
from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.functional.exponential import LOG2_E

PAIRS_ON_CPU = 1 << 17  # held at once: a tensor of scores is 0.5 MiB, and stays in the cache
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
        self.held: dict[str, Tensor] = {}

    def __call__(self, name: str, like: Tensor, *shape: int) -> Tensor:
        if not self.near:
            return like.new_empty(shape)
        size = math.prod(shape)
        if name not in self.held or self.held[name].numel() < size:
            self.held[name] = like.new_empty(size)
        return self.held[name][:size].view(shape)


class Plan:
    """N rows, batch x heads, of which `rows` are taken at once: on a CPU one, whose tensors stay in the cache."""

    def __init__(
        self,
        source: Int[Tensor, "N R T"],
        place: Float[Tensor, "N R T"],
        valid: Bool[Tensor, "N T"] | None,
        pairwise: Bool[Tensor, "B H T T"] | None,
        rules: Rules,
    ):
        N, _, T = source.shape
        self.near = source.device.type in ("cpu", "meta") and not torch.compiler.is_compiling()
        self.ready, self.rules, self.pairwise = Ready(self.near), rules, pairwise
        self.blocks = -(-T // rules.block)
        pairs = rules.block**2 * (rules.before + 1 + rules.after)
        self.at_once = max(1, (PAIRS_ON_CPU if self.near else PAIRS_ELSEWHERE) // pairs)
        self.rows = self._divisor(N)
        # Absent keys stand where nobody reaches; ranks beyond the ends are token 0's, which stands nowhere and asks nobody.
        stands = place if valid is None else place.masked_fill(~valid[:, None], math.inf)
        ends = rules.before * rules.block, self.blocks * rules.block - T + rules.after * rules.block
        self.asks, self.stands = place + rules.shift, stands
        self.sorted_asks = F.pad(self.asks.gather(2, source), ends, value=-math.inf)
        self.sorted_stands = F.pad(stands.gather(2, source), ends, value=math.inf)
        row = torch.arange(N, device=source.device) % self.rows
        self.tokens = F.pad(source, ends) + T * row[:, None, None]  # numbered through `rows` rows

    def _divisor(self, N: int) -> int:
        """So that all groups of rows are alike."""
        most = min(N, max(1, self.at_once // self.blocks))
        return next((n for n in range(most, 1, -1) if N % n == 0), 1)

    def groups(self) -> Iterator[slice]:
        for start in range(0, self.tokens.shape[0], self.rows):
            yield slice(start, start + self.rows)

    def parts(self, rows: slice) -> Iterator["Part"]:
        """Every block of these rows in every round: of one row some at once, of several all."""
        size = min(self.blocks, self.at_once)
        places = [
            [z[rows, r].flatten() for r in range(z.shape[1])] for z in (self.asks, self.stands)
        ]
        for r in range(self.tokens.shape[1]):
            round_ = Round(self, rows, r, places)
            for start in range(0, self.blocks, size):
                yield Part(round_, start, min(start + size, self.blocks))


class Round:
    """Places of the queries of each block and of the keys of its window, in this round and in earlier ones."""

    def __init__(self, plan: Plan, rows: slice, r: int, places: list[list[Tensor]]):
        rules = plan.rules
        self.plan, self.rows, self.rules, self.c = plan, rows, rules, rules.block
        self.w = (rules.before + 1 + rules.after) * self.c
        self.ahead = rules.before * self.c
        self.tokens = plan.tokens[rows, r]
        self.asks = [self._blocks(plan.sorted_asks[rows, r])]
        self.stands = [self._windows(plan.sorted_stands[rows, r])]
        for asks, stands in zip(*(z[:r] for z in places), strict=True) if rules.count_once else ():
            self.asks.append(self._blocks(self._of_tokens(asks)))
            self.stands.append(self._windows(self._of_tokens(stands)))

    def _of_tokens(self, z: Float[Tensor, "nT"]) -> Float[Tensor, "n l"]:
        return z.index_select(0, self.tokens.flatten()).view_as(self.tokens)

    def _blocks(self, z: Float[Tensor, "n l"]) -> Float[Tensor, "n G c 1"]:
        z = z[:, self.ahead : self.ahead + self.plan.blocks * self.c]
        return z.unflatten(1, (-1, self.c))[..., None]

    def _windows(self, z: Float[Tensor, "n l"]) -> Float[Tensor, "n G 1 w"]:
        return z.unfold(1, self.w, self.c)[:, :, None]


class Part:
    """n rows of g blocks of c queries, of which each meets the w keys of its window."""

    def __init__(self, round_: Round, start: int, stop: int):
        self.round, self.plan, self.rules = round_, round_.plan, round_.rules
        self.n, self.g, self.c, self.w = self.plan.rows, stop - start, round_.c, round_.w
        self.ready, self._blocks = self.plan.ready, slice(start, stop)
        first, count = start * self.c, self.g * self.c
        tokens = round_.tokens[:, first : first + count - self.c + self.w]
        self.keys = tokens.flatten()
        self.queries = tokens[:, round_.ahead : round_.ahead + count].flatten()

    def of_queries(self, z: Float[Tensor, "nT K"], name: str) -> Float[Tensor, "ng c K"]:
        return self._rows(z, self.queries, name).view(self.n * self.g, self.c, -1)

    def of_keys(self, z: Float[Tensor, "nT K"], name: str) -> Float[Tensor, "ng w K"]:
        return self._windows(self._rows(z, self.keys, name).view(self.n, -1, z.shape[1]))

    def per_query(self, z: Float[Tensor, "nT"]) -> Float[Tensor, "ng c 1"]:
        return z.index_select(0, self.queries).view(-1, self.c, 1)

    def scores(
        self, q: Float[Tensor, "ng c K"], k: Float[Tensor, "ng w K"], scale: float
    ) -> Float[Tensor, "ng c w"]:
        """scale q k^T, in base 2 and at least in float32; far below all others where a pair is not allowed."""
        far, scale = self._far(), scale * LOG2_E
        if far.dtype == q.dtype:
            return far.baddbmm_(q, k.transpose(1, 2), beta=-FAR, alpha=scale)
        scores = (q @ k.transpose(1, 2)).to(torch.promote_types(q.dtype, torch.float32)).mul_(scale)
        return scores.sub_(far, alpha=FAR)

    def add_to_queries(self, to: Float[Tensor, "nT K"], rows: Float[Tensor, "ng c K"]) -> None:
        to.index_add_(0, self.queries, rows.flatten(0, 1).to(to.dtype))

    def add_to_keys(self, to: Float[Tensor, "nT K"], rows: Float[Tensor, "ng w K"]) -> None:
        """The transpose of `of_keys`: each slice of a window goes to its own block of sorted keys, and these to tokens."""
        slices = self.w // self.c
        total = self.ready("sorted", rows, self.n, self.g + slices - 1, self.c, rows.shape[2])
        for start, part in enumerate(rows.view(self.n, self.g, slices, self.c, -1).unbind(2)):
            if start == 0:
                total[:, : self.g] = part
                total[:, self.g :] = 0
            else:
                total[:, start : start + self.g] += part
        to.index_add_(0, self.keys, total.flatten(0, 2).to(to.dtype))

    def _rows(self, z: Tensor, index: Tensor, name: str) -> Tensor:
        if not self.ready.near:
            return z.index_select(0, index)
        out = self.ready(name, z, index.shape[0], z.shape[1])
        return torch.index_select(z, 0, index, out=out)

    def _far(self) -> Float[Tensor, "ng c w"]:
        """How many of the conditions a pair fails: near in this round, in no earlier one, no later token, .."""
        rules = self.rules
        far = self._distance(0, "far").gt_(rules.reach)
        if len(self.round.asks) > 1:
            nearest = self._distance(1, "nearest")
            for s in range(2, len(self.round.asks)):
                torch.minimum(nearest, self._distance(s, "distance"), out=nearest)
            far += nearest.le_(rules.reach)
        if rules.exclude_self:
            far.diagonal(rules.before * self.c, 1, 2).fill_(1)
        if rules.causal or self.plan.pairwise is not None:
            i = self.queries.view(-1, self.c, 1)
            j = self._windows(self.keys.view(self.n, -1))[:, None]
            if rules.causal:
                far += j > i
            if self.plan.pairwise is not None:
                far += ~self._pairs_at(i, j)
        return far

    def _distance(self, s: int, name: str) -> Float[Tensor, "ng c w"]:
        asks, stands = (
            z[s][:, self._blocks].flatten(0, 1) for z in (self.round.asks, self.round.stands)
        )
        out = self.ready(name, asks, self.n * self.g, self.c, self.w)
        return torch.sub(stands, asks, out=out).abs_()

    def _pairs_at(self, i: Tensor, j: Tensor) -> Bool[Tensor, "ng c w"]:
        pairwise = self.plan.pairwise
        assert pairwise is not None
        H, T = pairwise.shape[1:3]
        n = self.round.rows.start + i // T
        return pairwise[n // H, n % H, i % T, j % T]

    def _windows(self, z: Tensor) -> Tensor:
        """[n l ..] -> [ng w ..], of one row as a view."""
        seen = z.unfold(1, self.w, self.c)
        return (seen if z.dim() == 2 else seen.transpose(2, 3)).flatten(0, 1)
