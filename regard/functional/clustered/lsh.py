"""Locality-sensitive hashing attention (Kitaev et al. 2020, arXiv 2001.04451)."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from regard.core.mask import OPEN, Mask
from regard.functional.clustered.order import Order, band, chunks
from regard.functional.clustered.sorted_chunks import attend
from regard.functional.clustered.top_k import first_equal_
from regard.functional.shared.implementation import Impl, cut
from regard.functional.shared.numerics import wide_type


def angular_hash(
    q: Float[Tensor, "B H T K"],
    rotations: list[Float[Tensor, "R H K _"]],
    *,
    impl: Impl = "auto",
) -> Int[Tensor, "B H R T"]:
    """h(q) = argmax([q R; -q R]) in each round and head (cross-polytope hash, arXiv 1509.02897).

    Several rotations make independent hashes h_1, h_2, .. that are one: h_1 + n_1 (h_2 + n_2 ..), n_i = 2 columns.
    """
    how = cut("clustered", impl, q)
    bucket = torch.zeros((), dtype=torch.long, device=q.device)
    for rotation in reversed(rotations):
        R, _, _, n = rotation.shape
        turns = rotation.permute(1, 2, 0, 3).flatten(2)
        rotated = q.shape[0] * q.shape[1] * R * n * q.element_size()  # bytes of a token
        some = max(how.tile, how.room // max(1, rotated))
        parts = q.detach().split(some, dim=2)
        found = torch.cat([_nearest_poles(part @ turns, R) for part in parts], dim=3)
        bucket = bucket * (2 * n) + found
    return bucket


def _nearest_poles(rotated: Float[Tensor, "B H t Rn"], R: int) -> Int[Tensor, "B H R t"]:
    """argmax([q R; -q R]), the first of equals. Selections by arithmetic: `where` is far slower."""
    rotated = rotated.to(wide_type(rotated)).unflatten(3, (R, -1))
    n = rotated.shape[-1]
    high, low = rotated.amax(-1, keepdim=True), rotated.amin(-1, keepdim=True).neg_()
    best = torch.maximum(high, low)
    lower = low.gt_(high)
    index = first_equal_(rotated, best * (1 - 2 * lower)) + n * lower[..., 0]
    return index.long().transpose(2, 3)


def lsh_order(
    buckets: Int[Tensor, "B H R T"],
    *,
    chunk_size: int,
    strict: bool,
    chunks_before: int = 1,
    chunks_after: int = 0,
    same_bucket_only: bool = True,
    mask: Mask = OPEN,
    impl: Impl = "auto",
) -> Order:
    """Who sees whom; absent tokens go behind the last bucket, where they move no chunk's border."""
    if mask.valid is not None and buckets.numel() > 0:
        buckets = torch.where(mask.valid[:, None, None, :], buckets, buckets.amax() + 1)
    if strict:
        return band(buckets, chunk_size, tile=cut("clustered", impl, buckets).tile)
    return chunks(
        buckets, chunk_size, before=chunks_before, after=chunks_after, same_group=same_bucket_only
    )


def lsh_attention(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B H T K"],
    v: Float[Tensor, "B H T V"],
    *,
    buckets: Int[Tensor, "B H R T"],
    chunk_size: int,
    mask: Mask = OPEN,
    scale: float = 1.0,
    chunks_before: int = 1,
    chunks_after: int = 0,
    same_bucket_only: bool = True,
    dedup: bool = True,
    impl: Impl = "auto",
) -> Float[Tensor, "B H T V"]:
    """Softmax over the tokens that share a bucket in one of R rounds and lie near in the sorted order.

    k: the queries at unit norm, as a rule. Causal: the last `chunk_size` earlier tokens of the own bucket, so that no
    later token moves a border. Otherwise: chunks of the order by (bucket, position). A token sees itself only where
    it sees nothing else.
    """
    order = lsh_order(
        buckets,
        chunk_size=chunk_size,
        strict=mask.causal,
        chunks_before=chunks_before,
        chunks_after=chunks_after,
        same_bucket_only=same_bucket_only,
        mask=mask,
        impl=impl,
    )
    return attend(
        q,
        k,
        v,
        order=order,
        mask=mask,
        scale=scale,
        exclude_self=True,
        count_once=dedup,
        impl=impl,
    )
