"""torch's fused softmax attention, on any device. It has no second derivative, and stores no weights."""

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from regard.functional.choice import Form


def attend(
    q: Float[Tensor, "B H T K"],
    k: Float[Tensor, "B G S K"],
    v: Float[Tensor, "B G S V"],
    mask: Shaped[Tensor, "#B #H #T S"] | None = None,
    *,
    causal: bool = False,
    scale: float | None = None,
    dropout: float = 0.0,
    form: Form,
) -> Float[Tensor, "B H T V"]:
    # A plain bool, which the kernel wants, also where a compiler has a symbol for the number of heads.
    grouped = True if k.shape[1] != q.shape[1] else False
    return F.scaled_dot_product_attention(
        q, k, v, mask, dropout, causal, scale=scale, enable_gqa=grouped
    )


def inside(
    q: Float[Tensor, "B H N c K"],
    k: Float[Tensor, "B H N s K"],
    v: Float[Tensor, "B H N s V"],
    allowed: Bool[Tensor, "b h n #c s"] | None,
    ahead: Int[Tensor, "*d c s"],
    *,
    form: Form,
) -> Float[Tensor, "B H N c V"]:
    """In chunks, which stand where the kernel has its heads: no copies."""
    heads = q.shape[:2]
    q, k, v = (z.flatten(0, 1) for z in (q, k, v))
    if allowed is None:
        return attend(q, k, v, scale=1.0, form=form).unflatten(0, heads)
    if allowed.shape[:2] != (1, 1):
        allowed = allowed.expand(*heads, -1, -1, -1).flatten(0, 1)[None]
    some = allowed[0].any(-1, keepdim=True)
    y = attend(q, k, v, allowed[0] | ~some, scale=1.0, form=form)
    return torch.where(some, y, y.new_zeros(())).unflatten(0, heads)
