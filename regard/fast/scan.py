"""The delta rule's chunks as one step of a compiled program, which then serves any number of them."""

import torch
from torch import Tensor

from regard.functional.delta import scanned
from regard.functional.rows import Form, of_any_length


def attend(S: Tensor, *chunks: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    y, S, _ = torch.ops.regard.delta_scan(S, *chunks)
    return y, S


def unfit(S: Tensor, q: Tensor, *chunks: Tensor, form: Form) -> str | None:
    return None if of_any_length(q.shape[2]) else "it is for programs that serve any length"


@torch.library.custom_op("regard::delta_scan", mutates_args=())
def _scan(
    S: Tensor, q: Tensor, qk: Tensor, U: Tensor, W: Tensor, k: Tensor, kept: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """`scanned`, and the states before each chunk."""
    read, before = [], []
    for chunk in zip(*(z.split(1, 2) for z in (q, qk, U, W, k, kept)), strict=True):
        before.append(S)
        y, S = scanned(S, *chunk)
        read.append(y)
    return torch.cat(read, 2), S.clone(), torch.stack(before, 2)


@torch.library.custom_op("regard::delta_scan_backward", mutates_args=())
def _backward(
    dy: Tensor, dS: Tensor, before: Tensor, q: Tensor, qk: Tensor, U: Tensor, W: Tensor, k: Tensor, kept: Tensor
) -> list[Tensor]:  # fmt: skip
    found = []
    chunks = [*zip(*(z.unbind(2) for z in (dy, before, q, qk, U, W, k, kept)), strict=True)]
    for dy_n, S, q_n, qk_n, U_n, W_n, k_n, kept_n in reversed(chunks):
        u = U_n - W_n @ S
        du = qk_n.mT @ dy_n + k_n.mT @ dS
        dkept = (dS * S).sum_to_size(kept_n.shape)
        found.append((dy_n @ S.mT, dy_n @ u.mT, du, -du @ S.mT, dS @ u.mT, dkept))
        dS = kept_n * dS + q_n.mT @ dy_n - W_n.mT @ du
    return [dS.clone(), *(torch.stack(parts[::-1], 2) for parts in zip(*found, strict=True))]


@_scan.register_fake
def _(S, q, qk, U, W, k, kept):
    return U.new_empty(U.shape), S.new_empty(S.shape), S.new_empty(*q.shape[:3], *S.shape[2:])


@_backward.register_fake
def _(dy, dS, before, *chunks):
    return [z.new_empty(z.shape) for z in (dS, *chunks)]


def _keep(ctx, inputs, output):
    ctx.save_for_backward(output[2], *inputs[1:])


def _gradients(ctx, dy, dS, _):
    return tuple(_backward(dy, dS, *ctx.saved_tensors))


_scan.register_autograd(_gradients, setup_context=_keep)
