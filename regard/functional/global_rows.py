"""Global tokens beside a pattern: their keys before those of the tokens, and their rows over all keys."""

from typing import NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import Mask, Mixed, OwnKeys, OwnValues, Queries, compaction
from regard.functional.rows import Impl, pick, upto
from regard.functional.softmax import attend as attend_rows

KeysAndValues = tuple[Float[Tensor, "B H E K"], Float[Tensor, "B H E V"]]


class Prefix(NamedTuple):
    """Keys and values before those of the tokens. at: the global tokens that they are, -1 learned; present: those that exist."""

    k: Float[Tensor, "B H E K"]
    v: Float[Tensor, "B H E V"]
    at: Int[Tensor, "B E"]
    present: Bool[Tensor, "B E"]


def prefix_keys(
    k: OwnKeys, v: OwnValues, learned: KeysAndValues | None, mask: Mask, max_global: int | None
) -> tuple[Prefix | None, list[tuple[Tensor, Tensor]]]:
    """Keys before those of the tokens; positions of the global tokens among them, and which of these exist."""
    E = 0 if learned is None else learned[0].shape[2]
    if mask.global_tokens is None or max_global is None:
        if learned is None:
            return None, []
        at = torch.full((1, E), -1, device=k.device)
        return Prefix(*learned, at, at < 0), []
    marks = mask.global_tokens
    at, present = global_places(marks if mask.valid is None else marks & mask.valid, max_global)
    both = joined(learned, (pick(k, at), pick(v, at)))
    padded = F.pad(at, (E, 0), value=-1), F.pad(present, (E, 0), value=True)
    return Prefix(*both, *padded), [(at, present)]


def global_places(
    global_tokens: Bool[Tensor, "B T"], count: int
) -> tuple[Int[Tensor, "B M"], Bool[Tensor, "B M"]]:
    """Positions of the first `count` global tokens of every row, and which of them exist."""
    order = compaction(global_tokens)
    return order.source[:, :count], order.valid[:, :count]


def replace_rows(
    y: Mixed,
    q: Queries,
    k: OwnKeys,
    v: OwnValues,
    mask: Mask,
    at: Int[Tensor, "B M"],
    present: Bool[Tensor, "B M"],
    *,
    scale: float | None = None,
    prefix: KeysAndValues | None = None,
    impl: Impl = "plain",
) -> Mixed:
    """y, with the rows of global tokens computed anew over all keys that the mask allows."""
    T = q.shape[2]
    place, exists = at[:, None, :, None], present[:, None, :, None]
    allowed = exists.expand(-1, 1, -1, T)
    if mask.causal:
        allowed = allowed & (upto(T, q) <= place)
    if mask.valid is not None:
        allowed = allowed & mask.valid[:, None, None, :]
    if mask.pairwise is not None:
        allowed = allowed & pick(mask.pairwise.expand(q.shape[0], -1, -1, -1), at)
    if prefix is not None:
        k, v = joined(prefix, (k, v))
        allowed = F.pad(allowed, (prefix[0].shape[2], 0), value=True)
    rows = attend_rows(pick(q, at), k, v, allowed, scale=scale, impl=impl)
    rows = torch.where(exists, rows, pick(y, at))
    return y.scatter(2, place.expand_as(rows), rows)


def joined(first: KeysAndValues | None, second: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Keys and values of the prefix, and these behind them."""
    if first is None:
        return second
    return torch.cat([first[0], second[0]], 2), torch.cat([first[1], second[1]], 2)
