"""Growing stores of streaming states: append by concatenation, or in place into storage that was donated."""

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.shared.implementation import readable


def append(
    store: Float[Tensor, "B G C K"], new: Float[Tensor, "B G N K"], filled: int, donate: bool
) -> Float[Tensor, "B G C2 K"]:
    """`new` behind the first `filled` rows of `store`; room grows by doubling where the storage is ours to reuse."""
    end = filled + new.shape[2]
    if not is_ours(donate, store, new):
        return torch.cat([store[:, :, :filled], new], dim=2)
    if end > store.shape[2]:
        larger = store.new_zeros(*store.shape[:2], max(end, 2 * store.shape[2]), store.shape[3])
        larger[:, :, :filled] = store[:, :, :filled]
        store = larger
    store[:, :, filled:end] = new
    return store


def is_ours(donate: bool, *tensors: Tensor) -> bool:
    """True if donated storage may be overwritten: no gradient flows through its contents."""
    return donate and not (torch.is_grad_enabled() and any(z.requires_grad for z in tensors))


def place(
    length: Int[Tensor, "B"], valid: Bool[Tensor, "B N"] | None, N: int
) -> Int[Tensor, "B N"]:
    """Positions of the next N tokens of each row; -1 where there is no token."""
    position = length[:, None]
    position = position if N == 1 else position + torch.arange(N, device=length.device)
    return position if valid is None else torch.where(valid, position, -1)


def advance(
    length: Int[Tensor, "B"], valid: Bool[Tensor, "B N"] | None, N: int
) -> Int[Tensor, "B"]:
    return length + (N if valid is None else valid.sum(1))


def same_in_all(rows: Int[Tensor, "B *n"]) -> int | None:
    """The number that every row holds, if there is one and it is readable."""
    if not readable(rows):
        return None
    found = set(rows.flatten().tolist())
    return found.pop() if len(found) == 1 else None


def cached_mask(
    query: Int[Tensor, "B N"], key: Int[Tensor, "B S"], valid: Bool[Tensor, "B N"] | None
) -> Mask:
    """Which of the stored keys (with the new ones) the new queries may see; positions as `place` gives them."""
    if query.shape[1] == 1 and valid is None and same_in_all(query) == key.shape[1] - 1:
        return OPEN  # no stored place is empty
    if key.shape[1] == query.shape[1]:  # nothing was stored before: an ordinary causal forward
        return Mask(causal=True, valid=valid, compact=True)
    allowed = (key[:, None, :] >= 0) & (key[:, None, :] <= query[:, :, None])
    return Mask(pairwise=allowed[:, None])
