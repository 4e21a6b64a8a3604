"""A pair that the masks forbid is not felt, directly; this needs no oracle."""

import torch

from regard.core import Mask
from regard.testing.laws.sensitivity import influence
from regard.testing.subject import Request, S, Subject, T, require


def law(subject: Subject) -> None:
    subject.require_declared("pairwise")
    mixer = subject.make()
    x = subject.tokens(1, T)
    for causal in subject.causalities():
        allowed = (
            torch.rand(1, subject.num_heads, T, T, generator=torch.Generator().manual_seed(1)) < 0.4
        )
        allowed |= torch.eye(T, dtype=torch.bool)
        felt = influence(mixer, Request("", Mask(causal=causal, pairwise=allowed)), x)[0]
        everyone = Mask(causal=causal, pairwise=allowed).dense(T, T)[0].any(0)
        require(
            not felt[~everyone].any(),
            f"pairwise{', causal' if causal else ''}: a forbidden pair is felt",
        )
    if subject.can.cross:
        allowed = (
            torch.rand(1, subject.num_heads, T, S, generator=torch.Generator().manual_seed(2)) < 0.4
        )
        request = Request("", Mask(pairwise=allowed), subject.tokens(1, S, seed=7))
        if subject.can.bidirectional:
            felt = influence(mixer, request, x)[0]
            require(not felt[~allowed[0].any(0)].any(), "cross, pairwise: a forbidden pair is felt")
