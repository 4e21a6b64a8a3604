"""Padding is as if absent, whatever its content, amount and side; outputs at invalid positions are exactly zero.

In a stream too: tokens that were absent leave no trace in the state, and what comes after them is what it is without them.
"""

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
    if subject.can.causal and subject.can.streaming:
        _in_a_stream(subject)


@torch.no_grad()
def _in_a_stream(subject: Subject) -> None:
    mixer = subject.make()
    x, more = subject.tokens(B, T), subject.tokens(B, T, seed=1)[:, :4]
    if T + 4 > subject.longest:
        return
    y, state = mixer.extend(x, mixer.initial_state(B))
    after, _ = mixer.extend(more, state)
    for layout in LAYOUTS:
        columns = place(layout, 5)
        valid = torch.zeros(B, T + 5, dtype=torch.bool)
        valid[:, columns] = True
        z = 3 * subject.tokens(B, T + 5, seed=5)
        z[:, columns] = x
        padded, state = mixer.extend(z, mixer.initial_state(B), valid=valid)
        require_close(padded[:, columns], y, 1e-10, f"extend, {layout} padding")
        later, _ = mixer.extend(more, state)
        require_close(later, after, 1e-10, f"extend, after {layout} padding")
