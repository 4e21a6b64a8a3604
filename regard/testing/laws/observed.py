"""Values and head outputs are observed together, alike with and without the weights, whether or not there is a map.

Head outputs are those that a forward projects: what lies between heads and output, such as a gate, is in them.
"""

import torch
from torch import Tensor, nn

from regard.core import Mixer
from regard.testing.subject import B, Request, Subject, T, require, require_close


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
        reached = _projected(mixer, request, x)
        if reached is not None and whole.heads is not None and request.mask.valid is None:
            beside = whole.heads.transpose(1, 2).flatten(2)
            require_close(beside, reached, 1e-10, f"{what}: heads, and what forward projects")


def _projected(mixer: Mixer, request: Request, x: Tensor) -> Tensor | None:
    """What forward gives to the projection after its heads, if there is one."""
    out = getattr(getattr(mixer, "heads", None), "out", None)
    if not isinstance(out, nn.Module):
        return None
    seen: list[Tensor] = []
    hook = out.register_forward_pre_hook(lambda _, args: seen.append(args[0]))
    request(mixer, x)
    hook.remove()
    return seen[0]
