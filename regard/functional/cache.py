"""Growing stores of streaming states: append by concatenation, or in place into storage that was donated.

Token t of a row is in column t. On a CPU lengths are read, and the filled columns alone are worked on. A device that
would have to wait writes by index and reads the whole store, so that a step with reserved room changes no shape.
"""

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core import OPEN, Mask, ShapeError, longest
from regard.functional.rows import plain_alone, upto

Lengths = Int[Tensor, "B"]  # valid tokens of each row
NewKeys = Float[Tensor, "B H N K"]  # of the next tokens, or their queries
NewValues = Float[Tensor, "B H N V"]  # or what the next queries have read
Valid = Bool[Tensor, "B N"] | None  # new tokens that are no padding; None: all
Store = Float[Tensor, "B G C K"]  # C columns of keys, or of values


class Columns(NamedTuple):
    """Columns of the next N tokens, and those that are read for them. Absent tokens come last, and are written over later."""

    query: Int[Tensor, "B N"]  # positions of the new tokens, -1 where there is none
    new: Int[Tensor, "B N"]  # columns that are written
    start: int | None  # the first of them, where all rows share it and lengths may be read
    room: int  # columns of the store after the step
    seen: int  # the first columns, which are read
    valid: Valid
    length: Lengths  # tokens after the step

    @property
    def key(self) -> Int[Tensor, "B S"]:
        """Positions of the columns that are read."""
        return upto(self.seen, self.new).expand(self.new.shape[0], -1)

    @property
    def mask(self) -> Mask:
        """The columns that the new queries may see, of those that are read."""
        N = self.new.shape[1]
        if N == 1 and self.valid is None and self.start == self.seen - 1:
            return OPEN
        if self.seen == N:  # nothing was stored before: an ordinary causal forward
            return Mask(causal=True, valid=self.valid, compact=True)
        return Mask(pairwise=(self.key[:, None] <= self.query[..., None])[:, None])


def columns(state: Any, valid: Valid, N: int, store: Store, donate: bool) -> Columns:
    """The columns of a store that the next N tokens after this state fill, and those that are read.

    Raises ShapeError for a length that the store does not hold.
    """
    length, C = state.length, store.shape[2]
    most = most_in(length, state.most)
    if readable(length) and not all(0 <= n <= C for n in length.tolist()):
        raise ShapeError(
            f"state: length must be from 0 to {C}, the columns of its store, got {length.tolist()}"
        )
    needed = C + N if most is None else most + N  # an unknown store is taken to be full
    room = C if needed <= C else max(needed, 2 * C if donate else 0)
    seen = needed if N > 1 or readable(length) else room
    new = place(length, None, N)
    query = new if valid is None else torch.where(valid, new, -1)
    return Columns(query, new, same_in_all(length), room, seen, valid, advance(length, valid, N))


def most_in(length: Lengths, known: int | None) -> int | None:
    """No row has more tokens than this: read where that needs no device sync, else the bound that is known; None: there is none."""
    if readable(length):
        return max(length.tolist())
    return longest(length) if known is None or torch.compiler.is_compiling() else known


def put(
    store: Store, new: Float[Tensor, "B G N K"], at: Columns, donate: bool
) -> Float[Tensor, "B G C2 K"]:
    """The store with `new` in its columns."""
    if at.start is not None:
        return append(store, new, at.start, donate)
    if at.room > store.shape[2]:
        store = F.pad(store, (0, 0, 0, at.room - store.shape[2]))
        donate = True
    index = at.new[:, None, :, None].expand(new.shape)
    new = new.type_as(store)
    ours = is_ours(donate, store, new)
    return store.scatter_(2, index, new) if ours else store.scatter(2, index, new)


def append(
    store: Store, new: Float[Tensor, "B G N K"], filled: int, donate: bool
) -> Float[Tensor, "B G C2 K"]:
    """`new` behind the first `filled` rows of `store`; room grows by doubling where the storage is ours to reuse."""
    end = filled + new.shape[2]
    if not is_ours(donate, store, new):
        return torch.cat([store[:, :, :filled], new], 2)
    if end > store.shape[2]:
        larger = store.new_zeros(*store.shape[:2], max(end, 2 * store.shape[2]), store.shape[3])
        larger[:, :, :filled] = store[:, :, :filled]
        store = larger
    store[:, :, filled:end] = new
    return store


def is_ours(donate: bool, *tensors: Tensor) -> bool:
    """True if donated storage may be overwritten: no gradient flows through its contents, and autograd may count its changes."""
    if not donate or plain_alone():
        return False
    if torch.is_inference_mode_enabled():
        return True
    recorded = torch.is_grad_enabled()
    return not any(z.is_inference() or (recorded and z.requires_grad) for z in tensors)


def place(length: Lengths, valid: Valid, N: int) -> Int[Tensor, "B N"]:
    """Positions of the next N tokens of each row; -1 where there is no token."""
    position = length[:, None]
    position = position if N == 1 else position + upto(N, length)
    return position if valid is None else torch.where(valid, position, -1)


def advance(length: Lengths, valid: Valid, N: int) -> Lengths:
    """Lengths after N more tokens."""
    return length + (N if valid is None else valid.sum(1))


def last_rows(
    kept: Float[Tensor, "B M D"], new: Float[Tensor, "B N D"], count: Lengths
) -> Float[Tensor, "B M D"]:
    """The last M rows of those that were kept and the first `count` new ones."""
    row = count[:, None] + upto(kept.shape[1], new)
    return torch.cat([kept, new], 1).take_along_dim(row[..., None], 1)


def same_in_all(length: Lengths) -> int | None:
    """The number that every row holds, if there is one and it is readable."""
    if not readable(length):
        return None
    found = set(length.tolist())
    return found.pop() if len(found) == 1 else None


def readable(z: Tensor) -> bool:
    """True if steps may depend on the values of z: no device sync, no compiler and no torch.func."""
    return z.device.type == "cpu" and not (torch.compiler.is_compiling() or plain_alone())
