"""Packed documents are as rows of their own: outputs, gradients, maps and streams, with every mask that the mixer takes.

The rows are cut here by hand, one call each, so that nothing is shared with the way in which documents are packed.
"""

from collections.abc import Iterator
from dataclasses import replace

import torch
from torch import Tensor

from regard.core import Mask, Mixer
from regard.testing.subject import B, Subject, T, gradients, require, require_close

DOCUMENTS = torch.tensor([[3] * 4 + [7] * 1 + [0] * 8, [1] * 5 + [-2] * 6 + [9] * 2])
CHUNKS = (2, 5, 1, 5)


def packed(subject: Subject) -> None:
    mixer = subject.make()
    x = subject.tokens(B, T).requires_grad_()
    for request in subject.requests():
        if request.context is None:
            _equal(mixer, x, request.mask, request.label)
    if subject.can.causal and subject.can.streaming:
        _in_a_stream(subject, mixer, x.detach())


def _equal(mixer: Mixer, x: Tensor, mask: Mask, label: str) -> None:
    leaves = [x, *mixer.parameters()]
    whole = mixer(x, mask=replace(mask, documents=DOCUMENTS))
    apart = torch.zeros_like(whole)
    for row, cols, own in _documents(mask):
        apart[row, cols] = mixer(x[row, None, cols], mask=own)[0]
    require_close(whole, apart, 1e-10, f"documents, {label}")
    pairs = zip(gradients(whole, leaves), gradients(apart, leaves), strict=True)
    for got, expected in pairs:
        require_close(got, expected, 1e-10, f"a gradient of documents, {label}")
    if mixer.capabilities.attention_map:
        weights = mixer.attention_map(x, mask=replace(mask, documents=DOCUMENTS))
        prefix = weights.shape[3] - T
        blocks = torch.zeros_like(weights)
        for row, cols, own in _documents(mask):
            part = mixer.attention_map(x[row, None, cols], mask=own)[0]
            blocks[row, :, cols, prefix:][..., cols] = part[..., prefix:]
            blocks[row, :, cols, :prefix] = part[..., :prefix]
        require_close(weights, blocks, 1e-10, f"the map of documents, {label}")


def _documents(mask: Mask) -> Iterator[tuple[int, slice, Mask]]:
    """Row, columns and mask of each document."""
    for row in range(B):
        start = 0
        for length in DOCUMENTS[row].unique_consecutive(return_counts=True)[1].tolist():
            cols = slice(start, start + length)
            start += length
            valid, pairwise, marks = mask.valid, mask.pairwise, mask.global_tokens
            if valid is not None:
                valid = valid[-1:, cols] if len(valid) == 1 else valid[row, None, cols]
            if pairwise is not None:
                pairwise = pairwise[row % len(pairwise), None, :, cols, cols]
            if marks is not None:
                marks = marks[row, None, cols]
            yield row, cols, Mask(mask.causal, valid, pairwise, marks)


@torch.no_grad()
def _in_a_stream(subject: Subject, mixer: Mixer, x: Tensor) -> None:
    padding = torch.arange(T) % 4 != 2 if subject.can.padding else None
    for valid in (None,) if padding is None else (None, padding.expand(B, T)):
        whole = mixer(x, mask=Mask(causal=True, valid=valid, documents=DOCUMENTS))
        state, outputs = mixer.initial_state(B), []
        chunks = CHUNKS if subject.can.streaming == "exact" else (T,)
        for cols in torch.arange(T).split(chunks):
            here = None if valid is None else valid[:, cols]
            y, state = mixer.extend(x[:, cols], state, valid=here, documents=DOCUMENTS[:, cols])
            outputs.append(y)
        label = "documents in a stream" + ("" if valid is None else ", padded")
        require_close(torch.cat(outputs, 1), whole, 1e-10, label)
        y, _ = mixer.extend(x[:, :3], state)
        last = DOCUMENTS[0, -1:] == DOCUMENTS[0]
        rest = torch.cat([x[:1, last], x[:1, :3]], 1)
        kept = None if valid is None else torch.cat([valid[:1, last], valid.new_ones(1, 3)], 1)
        if subject.can.streaming == "exact":
            alone = mixer(rest, mask=Mask(causal=True, valid=kept))[:, -3:]
            require_close(y[:1], alone, 1e-10, f"{label}: what follows the last document")
        require(state.document is not None, "a stream of documents forgets their numbers")
