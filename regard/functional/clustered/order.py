"""Orders: who sees whom, when tokens are sorted by group and a query sees the keys of near rank.

Each of R rounds gives every token a place on a line, and query i sees key j where |place_i + shift - place_j| <= reach.
Groups are so far apart that no query reaches another group's keys.
"""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Float, Int
from torch import Tensor

from regard.functional.shared.implementation import readable

EXACT = 1 << 22  # the last place up to which float32 tells halves apart


class Reach(NamedTuple):
    """The keys that a query sees. In blocks of sorted tokens: keys at most `before` blocks back and `after` blocks on."""

    shift: float
    reach: float
    block: int
    before: int
    after: int
    only_earlier: bool  # no query reaches a later token


class Order(NamedTuple):
    source: Int[Tensor, "B H R T"]  # the token of each rank
    place: Float[Tensor, "B H R T"]  # of each token
    reach: Reach

    def rounds(self, rows: slice) -> Int[Tensor, "B H t T"]:
        """In how many rounds each of the queries `rows` sees each key."""
        queries, keys = self.place[..., rows, None] + self.reach.shift, self.place[..., None, :]
        count = torch.zeros((), dtype=torch.long, device=keys.device)
        for r in range(keys.shape[2]):
            count = count + ((queries[:, :, r] - keys[:, :, r]).abs() <= self.reach.reach)
        return count


def band(
    group: Int[Tensor, "B H R T"], width: int, *, tile: int, include_self: bool = False
) -> Order:
    """The last `width` earlier tokens of the query's own group; prefixes of a sequence have the same band.

    tile: queries in a block, which sees the keys of `width` tokens more.
    """
    least = 0 if include_self else 1  # <= place_i - place_j <= width
    block = min(width, tile)
    shift, reach = -(width + least) / 2, (width - least) / 2
    return Order(*_placed(group, 1, width), Reach(shift, reach, block, -(-width // block), 0, True))


def chunks(
    group: Int[Tensor, "B H R T"], size: int, *, before: int = 1, after: int = 0, same_group: bool
) -> Order:
    """Chunks of the sorted order: a query sees its own, `before` earlier and `after` later ones, never round the ends."""
    gap = max(before, after) + 1 if same_group else 0
    shift, reach = (after - before) / 2, (before + after) / 2  # -after <= place_i - place_j
    return Order(*_placed(group, size, gap), Reach(shift, reach, size, before, after, False))


def _placed(
    group: Int[Tensor, "B H R T"], size: int, gap: int
) -> tuple[Tensor, Float[Tensor, "B H R T"]]:
    """Token of each rank, and each token's place: rank // size, and `gap` more for each group before."""
    ordered, source = _sorted(group)
    T = group.shape[-1]
    line = (torch.arange(T, device=group.device) // size).expand_as(source)
    if gap:
        new = ordered[..., 1:] != ordered[..., :-1]
        line = line + gap * F.pad(new, (1, 0)).cumsum(-1)
    line = line.to(torch.float32 if T * (gap + 1) < EXACT else torch.float64)
    return source, torch.empty_like(source, dtype=line.dtype).scatter_(-1, source, line)


def _sorted(group: Int[Tensor, "B H R T"]) -> tuple[Tensor, Tensor]:
    """group.sort(stable=True). On a CPU one row of 32-bit numbers is sorted by its digits, six times as fast."""
    if not readable(group) or group.numel() == 0:
        return group.sort(dim=-1, stable=True)
    T, least = group.shape[-1], int(group.min())
    span, rows = int(group.max()) - least + 1, group.numel() // T
    if rows * span > torch.iinfo(torch.int32).max:
        return group.sort(dim=-1, stable=True)
    row = torch.arange(rows).view(*group.shape[:-1], 1)
    keys = (group + (row * span - least)).int()
    ordered, source = keys.flatten().sort(stable=True)
    return ordered.view(group.shape), source.view(group.shape) - row * T
