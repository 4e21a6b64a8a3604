"""torch's fused softmax attention, on any device. It has no second derivative, and stores no weights."""

import torch.nn.functional as F
from jaxtyping import Float, Shaped
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
