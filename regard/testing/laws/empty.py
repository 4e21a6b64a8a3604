"""A query that may see nothing gives exactly zero, with finite gradients."""

import torch

from regard.core import Mask
from regard.testing.subject import B, Request, S, Subject, T, gradients, require
from regard.testing.verdicts import NotDeclared


def law(subject: Subject) -> None:
    if not (subject.can.padding or subject.can.pairwise or subject.can.cross):
        raise NotDeclared(
            "every query sees something: padding, pairwise and cross are declared a No"
        )
    mixer = subject.make()
    for causal in subject.causalities():
        for request, blind in _requests(subject, causal):
            x = subject.tokens(B, T).requires_grad_()
            y = request(mixer, x)
            require(
                (y[blind] == 0).all(),
                f"{request.label}: a query that sees nothing is not exactly zero",
            )
            for found in gradients(y, [x, *mixer.parameters()]):
                require(torch.isfinite(found).all(), f"{request.label}: a gradient is not finite")


def _requests(subject: Subject, causal: bool):
    if subject.can.padding:
        valid = torch.ones(B, T, dtype=torch.bool)
        valid[0] = False
        yield Request("no valid token", Mask(causal=causal, valid=valid)), ~valid
    if subject.can.pairwise:
        pairwise = torch.ones(B, 1, T, T, dtype=torch.bool)
        pairwise[1, 0, 3] = False
        pairwise[0, 0, -1] = False
        yield (
            Request("no allowed pair", Mask(causal=causal, pairwise=pairwise)),
            ~pairwise[:, 0].any(-1),
        )
    if subject.can.cross:
        context = subject.tokens(B, S, seed=7)
        if subject.can.padding:
            valid = torch.ones(B, S, dtype=torch.bool)
            valid[0] = False
            blind = (~valid[:, :1]).expand(B, T).clone()
            if causal:
                blind[:, : T - S] = True
            yield Request("empty context", Mask(causal=causal, valid=valid), context), blind
        if causal:
            blind = (torch.arange(T) < T - S).expand(B, T)
            yield Request("queries before the context", Mask(causal=True), context), blind
