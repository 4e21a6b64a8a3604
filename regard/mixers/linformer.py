"""Linformer: keys and values projected along the length (Wang et al. 2020, arXiv 2006.04768).

    K' = E K,   V' = F V   (M slots),   y = softmax(Q K'^T / sqrt(K)) V'

E, F [M max_len] act on projected keys and values, without bias; a shorter sequence uses their first columns. Cost:
T M (K + V) per head; M = `num_slots`, by default 128, or `max_len` if that is less. `sharing`, as in the paper: "none"
(E_h, F_h for each head), "headwise" (E, F for all heads), "key_value" (E = F for all heads), "layerwise" (that one
matrix for all layers too: `projection`, a LengthProjection, is the object that all of them are given).

Beyond the paper's figures, and named in it: `projection="mean"` takes means over M segments as equal as can be, learns
nothing, has no longest length, and is exact up to M tokens. Its other suggestion, a strided convolution, is the mixer
`compressed`. Slots are sums over valid tokens and are not rescaled to their number, as in the paper. The attention
map is the product through the slots, (softmax) F, and has negative weights. `num_kv_heads`: arXiv 2305.13245. No rotary positions:
a slot is a sum over the whole length, and has no place.

Args:
    num_slots: keys and values that a row is projected to
    sharing: what shares a length projection: nothing, heads, keys and values, or layers
    projection: LengthProjection that layers share, or mean: means of segments; None: the mixer's own
"""

from typing import Literal

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from regard.core import No, OptionError
from regard.functional.projected import in_slots, projected_attention, segment_means
from regard.functional.rows import Impl, cleared
from regard.functional.softmax import attend
from regard.mixers._base import ALL, HeadsMixer
from regard.nn.length_projection import LengthProjection

Sharing = Literal["none", "headwise", "key_value", "layerwise"]
NUM_SLOTS = 128


class Linformer(HeadsMixer):
    __doc__ = __doc__
    name = "linformer"
    family = "low-rank"
    paper = "Wang et al. 2020, arXiv 2006.04768"
    operations = ("softmax",)
    capabilities = ALL.but(
        causal=No("every compressed key mixes all positions, later ones too"),
        pairwise=No("compressed keys mix all positions, so single pairs cannot be taken out"),
        streaming=No("it has no causal form"),
        any_length=No("the length projection has one column for each of max_len positions"),
        approximates="softmax",
        time="T M H K",
        state=None,
        exchange="slots",
    )
    variants = {
        "narrow": {"num_slots": 5},
        "headwise": {"num_slots": 5, "sharing": "headwise", "num_kv_heads": 1},
        "key_value": {"num_slots": 5, "sharing": "key_value"},
        "mean": {"num_slots": 5, "projection": "mean"},
    }
    limits = {"softmax": ({"projection": "mean", "num_slots": 64}, {})}

    def __init__(
        self,
        dim: int,
        *,
        num_heads: int,
        max_len: int,
        num_slots: int | None = None,
        sharing: Sharing = "none",
        projection: LengthProjection | Literal["mean"] | None = None,
        num_kv_heads: int | None = None,
        impl: Impl = "auto",
    ):
        _check(sharing, projection, max_len, num_slots)
        super().__init__(
            dim,
            num_heads,
            num_kv_heads,
            impl,
            max_len=max_len,
            alike=sharing != "none" or projection == "mean",
        )
        self.num_slots = num_slots or min(NUM_SLOTS, max_len)
        self.project: LengthProjection | None = None
        if projection == "mean":
            self.declare(any_length=True)
        elif isinstance(projection, LengthProjection):
            self.project = projection
            self.num_slots = projection.num_slots
        else:
            self.project = LengthProjection(
                max_len,
                self.num_slots,
                num_heads=num_heads if sharing == "none" else 1,
                tied=sharing == "key_value",
            )

    def mix(self, x, context, mask):
        q, k, v = self.heads.split(x, context)
        valid, S = mask.valid, k.shape[2]
        count = k.new_full((1,), S, dtype=torch.long) if valid is None else valid.sum(1)
        E, F, taken = self._matrices(count, S)
        y = projected_attention(q, k, v, E=E, F=F, valid=valid, slots=taken, impl=self.impl)
        return self.heads.merge(y)

    def _matrices(
        self, count: Int[Tensor, "b"], S: int
    ) -> tuple[Tensor, Tensor, Bool[Tensor, "b M"] | None]:
        """E and F of rows of `count` valid tokens, S at most, and the slots that take part (None: all)."""
        if self.project is not None:
            return *self.project(S), None
        E = segment_means(count, S, self.num_slots, self._like.dtype)
        return E, E, (E[:, 0] > 0).any(-1)

    def _in_slots(self, context, valid, place, count, S):
        """Keys and values of the slots, and which take part, as far as these tokens make them: each is at its place [B S] of `count` [B]."""
        E, F, taken = self._matrices(count, max(S, 1))
        place = place.clamp_max(E.shape[3] - 1)[:, None, None]
        k = self.heads.keys(context)
        v = self.heads.values(context)
        k, v = (
            in_slots(E.take_along_dim(place, 3), cleared(z, valid)) for E, z in ((E, k), (F, v))
        )
        return k, v, taken

    def _read(self, x, kept, at):
        k, v, taken = kept
        allowed = None if taken is None else taken[:, None, None]
        return attend(self.heads.queries(x), k, v, allowed, impl=self.impl)


def _check(sharing: Sharing, projection: object, max_len: int, num_slots: int | None) -> None:
    if isinstance(projection, LengthProjection) != (sharing == "layerwise"):
        raise OptionError(
            f"linformer: sharing='layerwise' and a LengthProjection as projection go together, got sharing={sharing!r} "
            f"and projection={projection!r}. Give one object to every layer: projection=LengthProjection({max_len}, 128)"
        )
    if projection == "mean" and sharing != "none":
        raise OptionError(f"linformer: projection='mean' has nothing to share, got {sharing=}")
    if isinstance(projection, LengthProjection):
        if projection.max_len < max_len:
            raise OptionError(
                f"linformer: max_len ({max_len}) exceeds that of projection ({projection.max_len})"
            )
        if num_slots not in (None, projection.num_slots):
            raise OptionError(
                f"linformer: num_slots ({num_slots}) is not that of projection ({projection.num_slots})"
            )
