"""Locality-sensitive hashing attention (Kitaev et al. 2020, arXiv 2001.04451).

    h(x) = argmax([x R; -x R]),   R random, for each round
    y_i = sum_j a_ij v_j,   a_i = softmax of  scale q_i . k_j  over  { j != i : h(j) = h(i), j near in the order by (h, time) }

The strict and the published order differ in the four integers of a window: see `functional.sorted`.
"""

import torch
from jaxtyping import Float
from torch import Tensor
from torch.compiler import is_compiling

from regard.core import OPEN, Count, Mask, Mixed, OwnKeys, OwnValues, Queries
from regard.functional.rows import Impl, wide_type
from regard.functional.sorted import Ranks, Window, chunks, last_of_group, sorted_attention


def angular_hash(q: Queries, rotations: list[Float[Tensor, "R H K _"]]) -> Ranks:
    """h(q) = argmax([q R; -q R]) in each round and head (cross-polytope hash, arXiv 1509.02897).

    Several rotations make independent hashes h_1, h_2, .. that are one: h_1 + n_1 (h_2 + n_2 ..), n_i = 2 columns.
    """
    wide = wide_type(q)
    q, bucket = q.detach().to(wide)[:, :, None], torch.zeros((), dtype=torch.long, device=q.device)
    for rotation in reversed(rotations):
        turned = q @ rotation.to(wide).transpose(0, 1)
        n = rotation.shape[-1]
        pole = turned.abs().argmax(-1, keepdim=True)
        pole = pole + n * (turned.gather(-1, pole) < 0)  # faster than argmax over both signs
        bucket = bucket * 2 * n + pole[..., 0]
    return bucket


def sort_plan(
    buckets: Ranks,
    *,
    chunk_size: int,
    chunks_before: Count,
    chunks_after: Count,
    same_bucket_only: bool,
    mask: Mask,
) -> tuple[Ranks, Window]:
    """Groups and window. Padding is sorted last, so that chunk borders do not depend on it."""
    if mask.valid is not None:
        behind = buckets.amax(-1, keepdim=True) + 1
        buckets = torch.where(mask.valid[:, None, None], buckets, behind)
    chunk_size = chunk_size if is_compiling() else min(chunk_size, buckets.shape[3])
    if mask.causal:
        return buckets, last_of_group(chunk_size)
    return buckets, chunks(
        chunk_size, before=chunks_before, after=chunks_after, same_group=same_bucket_only
    )


def lsh_attention(
    q: Queries,
    k: OwnKeys,
    v: OwnValues,
    *,
    buckets: Ranks,
    chunk_size: int,
    mask: Mask = OPEN,
    scale: float = 1.0,
    chunks_before: Count = 1,
    chunks_after: Count = 0,
    same_bucket_only: bool = True,
    dedup: bool = True,
    impl: Impl = "auto",
) -> Mixed:
    """Softmax over the tokens that share a bucket in one of R rounds and are near in the sorted order.

    k: the queries at unit norm, as a rule. Causal: the last `chunk_size` earlier tokens of the own bucket, so that no
    later token moves a border. Otherwise: chunks of the order by (bucket, position), its
    own, `chunks_before` earlier and `chunks_after` later ones. A token sees itself only where
    it sees nothing else.
    """
    group, window = sort_plan(
        buckets.long(),
        chunk_size=chunk_size,
        chunks_before=chunks_before,
        chunks_after=chunks_after,
        same_bucket_only=same_bucket_only,
        mask=mask,
    )
    return sorted_attention(
        q,
        k,
        v,
        group=group,
        window=window,
        mask=mask,
        scale=scale,
        exclude_self=True,
        count_once=dedup,
        impl=impl,
    )
