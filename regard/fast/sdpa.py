"""torch's fused softmax attention, on any device. It has no second derivative, and stores no weights."""

import torch
import torch.nn.functional as F
from torch import Tensor

from regard.core import Mask, Mixed, Values
from regard.functional.rows import Form, autocast_dtype, with_ones
from regard.functional.softmax import softmax_attention
from regard.functional.synthesizer import Logits, product

GRAIN = 8
"""Channels: the kernels of other devices than a CPU want multiples of it."""


def attend(q, k, v, mask=None, *, causal=False, scale=None, dropout=0.0, form: Form) -> Mixed:
    """Keys and values are padded with zeros to one width: without that the kernel stores T x T weights."""
    K, V = q.shape[3], v.shape[3]
    if K != V:
        scale = K**-0.5 if scale is None else scale
        width = max(K, V)
        width += 0 if v.is_cpu else -width % GRAIN
        q, k, v = (F.pad(z, (0, width - z.shape[3])) for z in (q, k, v))
    if causal and scale is not None and scale <= 0:  # the kernel multiplies what it masks by it
        q, scale = q * scale, 1.0
    # A plain bool, which the kernel wants, also where a compiler has a symbol for the number of heads.
    grouped = True if k.shape[1] != q.shape[1] else False
    y = F.scaled_dot_product_attention(
        q, k, v, mask, dropout, causal, scale=scale, enable_gqa=grouped
    )
    return y if K == V else y[..., :V]


def unfit(*tensors: Tensor | None, form: Form, **options) -> str | None:
    return "it does not cap scores" if "soft_cap" in options else None


def synthesized(
    v: Values, *tensors: Tensor, logits: Logits, T: int, mask: Mask, form: Form
) -> Mixed:
    """Factors of logits as queries and keys."""
    B, H, S, _ = v.shape
    v = v.to(autocast_dtype(v) or v.dtype)
    cut = [z[:, :, :n].type_as(v) for z, n in zip(tensors, (T, S, S), strict=False)]
    q, k, *bias = (z.expand(B, H, *z.shape[2:]) for z in cut)
    if bias:  # one more channel of the keys, which all queries have
        q = with_ones(q)
        k = torch.cat([k, bias[0][..., None]], -1)
    return softmax_attention(q, k, v, mask=mask, scale=1.0, impl=form)


def unfit_synthesized(
    v: Tensor, *tensors: Tensor, logits: Logits, form: Form, **options
) -> str | None:
    if logits.make is not product:
        return "its logits are no products"
    if all(z.shape[0] < v.shape[0] for z in tensors):
        return "its weights are those of all examples"
    narrow = v.is_cpu and v.dtype.itemsize >= 4 and not torch.compiler.is_compiling()
    if narrow and 2 * tensors[0].shape[3] < v.shape[3]:
        return "factors would be widened to the values, which costs more than it saves"
    return None
