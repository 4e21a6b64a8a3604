"""Padding is as if absent, whatever its content, amount and side; outputs at invalid positions are exactly zero."""

import torch
from torch import Tensor

from regard.core import Mask
from regard.testing.subject import B, Request, Subject, T, require, require_close

BOUNDS = ((torch.float64, 1e-10), (torch.float32, 1e-6))
LAYOUTS = ("right", "left", "interior", "both sides")


def place(layout: str, amount: int, length: int = T) -> Tensor:
    """Columns of the padded row that hold the `length` tokens."""
    columns = torch.arange(length)
    if layout == "left":
        return columns + amount
    if layout == "interior":
        return columns + amount * (columns > length // 2)
    if layout == "both sides":
        return columns + amount // 2
    return columns


def law(subject: Subject) -> None:
    subject.require_declared("padding")
    for dtype, bound in BOUNDS:
        mixer = subject.make(dtype)
        x = subject.tokens(B, T, dtype=dtype)
        context = subject.tokens(B, T, seed=3, dtype=dtype)
        for causal in subject.causalities():
            alone = mixer(x, mask=Mask(causal=causal))
            with_context = (
                mixer(x, context=context, mask=Mask(causal=causal)) if subject.can.cross else None
            )
            for layout in LAYOUTS:
                for amount in (2, 5):
                    if T + amount > subject.longest:
                        continue
                    columns = place(layout, amount)
                    valid = torch.zeros(B, T + amount, dtype=torch.bool)
                    valid[:, columns] = True
                    what = f"{layout} padding by {amount}{', causal' if causal else ''}, {dtype}"
                    request = Request(what, Mask(causal=causal, valid=valid))
                    noise = subject.tokens(B, T + amount, seed=amount, dtype=dtype)
                    padded = [content * noise for content in (0.0, 3.0)]
                    for z in padded:
                        z[:, columns] = x
                    for y in request.of_many(mixer, padded):
                        require_close(y[:, columns], alone, bound, what)
                        require(
                            (y[~valid] == 0).all(),
                            f"{what}: an output at an invalid position is not zero",
                        )
                    if with_context is None:
                        continue
                    for z in padded:
                        z[:, columns] = context
                    for y in request.of_many(mixer, [x], padded):
                        require_close(y, with_context, bound, f"cross, {what}")
