"""Causal sums through fla-core's chunked kernel (github.com/fla-org/flash-linear-attention), on CUDA.

For q, k [B T H M], v [B T H V] and log-decays g [B T H], `chunk_simple_gla` returns o [B T H V] and the last S [B H M V] of

    o_t = scale q_t S_t,   S_t = e^(g_t) S_{t-1} + k_t v_t^T

which at scale 1 is the numerator of `linear.weighted_sums`, and with v = 1 its denominator. fla's own normaliser adds 1e-10 and
knows no decay, so a column of ones goes beside v in its place. The first call at a width tries the kernel's settings.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor

from regard.core import Mask
from regard.core.packages import lacking
from regard.functional.linear import CAUSAL
from regard.functional.rows import Form, widened, with_ones

WIDTH = 16  # channels are filled up with zeros: the kernel refuses odd numbers, and whole rows are read faster


def causal_sums(
    phi_q, phi_k, v, log_decay=None, S=None, z=None, *, mask: Mask = CAUSAL, form: Form
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The sums in the dtype of v."""
    M, V = phi_q.shape[-1], v.shape[-1]
    (log_decay,) = widened(log_decay)
    state = None
    if S is not None and z is not None:
        state = _filled(_filled(torch.cat([S, z[..., None]], -1)).mT).mT
    o, after = _kernel()(
        q=_filled(phi_q.type_as(v)).transpose(1, 2),
        k=_filled(phi_k.type_as(v)).transpose(1, 2),
        v=_filled(with_ones(v)).transpose(1, 2),
        g=None if log_decay is None else log_decay.transpose(1, 2),
        scale=1.0,
        initial_state=state,
        output_final_state=True,
    )
    o = o.transpose(1, 2)
    after = after[:, :, :M].to(v.dtype if S is None else S.dtype)
    return o[..., :V], o[..., V : V + 1], after[..., :V], after[..., V]


def unfit(phi_q, phi_k, v, log_decay=None, S=None, z=None, *, mask=CAUSAL, form) -> str | None:
    """Gradients of a decay need a compiler that is free of fla's issue 640."""
    if not mask.causal or mask.shift is not None or phi_q.shape[2] != v.shape[2]:
        return "it is for causal order on one axis alone"
    if log_decay is not None and (lacks := lacking("triton", "3.7.1")):
        return f"with a decay it needs {lacks}"
    return None


def _filled(x: Float[Tensor, "*b K"]) -> Float[Tensor, "*b W"]:
    """These columns and then zeros, up to a multiple of WIDTH."""
    rest = -x.shape[-1] % WIDTH
    return F.pad(x, (0, rest)) if rest else x


def _kernel() -> Callable[..., tuple[Tensor, Tensor]]:
    from fla.ops.simple_gla import chunk_simple_gla

    return chunk_simple_gla
