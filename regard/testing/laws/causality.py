"""With `causal`, outputs before t depend on nothing from t on: not under perturbation, not under truncation.

In tiny blocks at each mask, and behind the borders of the blocks and chunks that users get.
"""

from itertools import product

import torch
from torch import Tensor

from regard.core import Mask
from regard.testing.subject import B, Request, S, Subject, T, require_close

PLACES, SCALES = (1, 4, 6, 9, T - 1), (1.0, 30.0)
LENGTH, FAR = 1103, (300, 1102)  # past the first chunk, and the last token


def law(subject: Subject) -> None:
    subject.require_declared("causal")
    mixer = subject.make()
    for request in subject.requests():
        if not request.mask.causal or request.context is not None:
            continue
        x = subject.tokens(B, T)
        changes = list(product(PLACES, SCALES))
        moved = [x, *(x.clone() for _ in changes)]
        for (t, scale), z in zip(changes, moved[1:], strict=True):
            z[:, t:] += scale * subject.tokens(B, T - t, seed=t)
        y, *found = request.of_many(mixer, moved)
        for (t, scale), after in zip(changes, found, strict=True):
            what = (
                f"{request.label}: outputs before {t} after a change of scale {scale:g} from {t} on"
            )
            require_close(after[:, :t], y[:, :t], 1e-11, what)
        for t in PLACES:
            short = _first(request.mask, t)
            require_close(
                mixer(x[:, :t], mask=short), y[:, :t], 1e-9, f"{request.label}: truncated to {t}"
            )
    _behind_borders(subject)
    _in_training(subject)
    if subject.can.cross:
        _cross(subject)


@torch.no_grad()
def _behind_borders(subject: Subject) -> None:
    mixer = subject.make(blocks="own", max_len=LENGTH)
    x = subject.tokens(1, LENGTH)
    y = mixer(x, mask=Mask(causal=True))
    for t in FAR:
        z = x.clone()
        z[:, t:] += 30 * subject.tokens(1, LENGTH - t, seed=t)
        what = f"outputs before {t} of {LENGTH} tokens after a change from {t} on"
        require_close(mixer(z, mask=Mask(causal=True))[:, :t], y[:, :t], 1e-11, what)


def _in_training(subject: Subject) -> None:
    """The same with `train()`, under one seed for all calls: what is added there may not look ahead either."""
    mixer = subject.make().train()

    def run(x: Tensor) -> Tensor:
        torch.manual_seed(0)
        return mixer(x, mask=Mask(causal=True))

    x = subject.tokens(B, T)
    with torch.random.fork_rng(devices=[]):
        y = run(x)
        for t in (1, 6, T - 1):
            moved = x.clone()
            moved[:, t:] += subject.tokens(B, T - t, seed=t)
            what = f"in training: outputs before {t} after a change from {t} on"
            require_close(run(moved)[:, :t], y[:, :t], 1e-11, what)


def _cross(subject: Subject) -> None:
    """The last query is aligned to the last key."""
    mixer = subject.make()
    x, context = subject.tokens(B, T), subject.tokens(B, S, seed=7)
    moved = [context.clone() for _ in range(S)]
    for j, z in enumerate(moved):
        z[:, j:] += 30 * subject.tokens(B, S - j, seed=j)
    request = Request("cross causal", Mask(causal=True))
    y, *found = request.of_many(mixer, [x], [context, *moved])
    for j, after in enumerate(found):
        first_to_see = j + T - S
        what = f"cross causal: queries before {first_to_see} after a change of keys from {j} on"
        require_close(after[:, :first_to_see], y[:, :first_to_see], 1e-11, what)


def _first(mask: Mask, t: int) -> Mask:
    return Mask(
        causal=True,
        valid=None if mask.valid is None else mask.valid[:, :t],
        pairwise=None if mask.pairwise is None else mask.pairwise[:, :, :t, :t],
        global_tokens=None if mask.global_tokens is None else mask.global_tokens[:, :t],
    )
