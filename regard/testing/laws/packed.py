"""Packed documents are as rows of their own: outputs, gradients, maps and streams, with every mask that the mixer takes."""

from collections.abc import Iterator

import torch
from torch import Tensor

from regard.core import Mask, Mixer
from regard.testing.laws.streaming import feed
from regard.testing.subject import (
    B,
    Request,
    Subject,
    T,
    cut,
    require,
    require_close,
    require_same,
    results,
)

DOCUMENTS = torch.tensor([[3] * 4 + [7] * 1 + [0] * 8, [1] * 5 + [-2] * 6 + [9] * 2])
CHUNKS = (2, 5, 1, 5)
BOUND = 1e-10


def packed(subject: Subject) -> None:
    """Packed documents are as rows of their own: outputs, gradients, maps and streams, with every mask that the mixer takes.

    The rows are cut here by hand, one call each, so that nothing is shared with the way in which documents are packed.
    """
    mixer = subject.make()
    x = subject.x.requires_grad_()
    for request in subject.requests():
        if request.context is None:
            _equals_rows(mixer, x, request)
    if subject.can.causal and subject.can.streaming:
        _in_a_stream(subject, mixer, x.detach())


def _equals_rows(mixer: Mixer, x: Tensor, request: Request) -> None:
    whole = request.but("documents", documents=DOCUMENTS)
    apart = torch.zeros_like(x)
    for row, cols, own in _documents(request.mask):
        apart[row, cols] = mixer(x[row, None, cols], mask=own)[0]
    require_same(whole.results(mixer, x), results(mixer, apart, x=x), BOUND, whole.label)
    if mixer.capabilities.attention_map:
        weights = mixer.attention_map(x, mask=whole.mask)
        prefix = weights.shape[3] - T
        blocks = torch.zeros_like(weights)
        for row, cols, own in _documents(request.mask):
            part = mixer.attention_map(x[row, None, cols], mask=own)[0]
            blocks[row, :, cols, prefix:][..., cols] = part[..., prefix:]
            blocks[row, :, cols, :prefix] = part[..., :prefix]
        require_close(weights, blocks, BOUND, f"{whole.label}: map")


def _documents(mask: Mask) -> Iterator[tuple[int, slice, Mask]]:
    """Row, columns and mask of each document."""
    for row, numbers in enumerate(DOCUMENTS):
        end = 0
        for length in numbers.unique_consecutive(return_counts=True)[1].tolist():
            cols = slice(end, end + length)
            end += length
            yield row, cols, cut(mask, cols, row)


@torch.no_grad()
def _in_a_stream(subject: Subject, mixer: Mixer, x: Tensor) -> None:
    exact = subject.streams
    padding = (torch.arange(T) % 4 != 2).expand(B, T)
    for valid in (None, padding) if subject.can.padding else (None,):
        whole = mixer(x, mask=Mask(causal=True, valid=valid, documents=DOCUMENTS))
        label = "documents in a stream" + ("" if valid is None else ", padded")
        chunks = CHUNKS if exact else (T,)
        y, state = feed(mixer, x, mixer.initial_state(B), chunks, valid=valid, documents=DOCUMENTS)
        require_close(y, whole, BOUND, label)
        y, _ = mixer.extend(x[:, :3], state)
        last = DOCUMENTS[0, -1:] == DOCUMENTS[0]
        rest = torch.cat([x[:1, last], x[:1, :3]], 1)
        kept = None if valid is None else torch.cat([valid[:1, last], valid.new_ones(1, 3)], 1)
        if exact:
            alone = mixer(rest, mask=Mask(causal=True, valid=kept))[:, -3:]
            require_close(y[:1], alone, BOUND, f"{label}: what follows the last document")
        require(state.document is not None, "a stream of documents forgets their numbers")
