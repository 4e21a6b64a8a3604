"""NaN, Inf and 1e30 where `valid` is False reach no valid output and no gradient."""

import torch

from regard.testing.subject import B, Request, Subject, T, gradients, require

POISONS = (0.0, float("inf"), float("nan"), 1e30)


def law(subject: Subject) -> None:
    subject.require_declared("padding")
    mixer = subject.make()
    for request in subject.requests():
        valid = request.mask.valid
        if valid is None:
            continue
        clean = subject.tokens(B, T) if request.context is None else request.context
        results = []
        for poison in POISONS:
            tokens = torch.where(
                valid[..., None], clean, torch.full_like(clean, poison)
            ).requires_grad_()
            if request.context is None:
                y = request(mixer, tokens)
            else:
                y = Request(request.label, request.mask, tokens)(mixer, subject.tokens(B, T))
            results.append([y, *gradients(y, [tokens, *mixer.parameters()])])
            got = results[-1]
            require(
                (got[1][~valid] == 0).all(),
                f"{request.label}: a gradient reaches a token that is absent",
            )
            for ours, expected in zip(got, results[0], strict=True):
                require(
                    torch.isfinite(ours).all(),
                    f"{request.label}: {poison} at an absent token spreads",
                )
                require(
                    torch.equal(ours, expected),
                    f"{request.label}: {poison} at an absent token changes a result",
                )
