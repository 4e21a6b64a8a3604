"""Values and head outputs are observed together, alike with and without the weights, whether or not there is a map."""

import torch

from regard.testing.subject import B, Subject, T, require, require_close


@torch.no_grad()
def law(subject: Subject) -> None:
    mixer = subject.make()
    for request in subject.requests():
        x = subject.tokens(B, T)
        whole, without = (
            mixer.observe(x, context=request.context, mask=request.mask, weights=kept)
            for kept in (True, False)
        )
        what = f"{request.label}: observe"
        require(without.weights is None, f"{what}(weights=False) gives weights")
        require(
            (whole.v is None) == (whole.heads is None),
            f"{what} gives {'head outputs' if whole.v is None else 'values'} alone",
        )
        for name in ("v", "heads"):
            one, other = getattr(without, name), getattr(whole, name)
            both = f"{what}: {name} without the weights"
            require(
                (one is None) == (other is None), f"{both} is given, or with them, and not both"
            )
            if one is not None:
                require_close(one, other, 1e-10, both)
