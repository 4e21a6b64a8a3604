"""State dict round trip, deepcopy, pickle, device move, and queries, keys and values made elsewhere keep the function.

Built on the meta device, `to_empty` and `reset_parameters` of every part leave nothing of the memory's content. A parameter that
starts elsewhere than construction has it is noted: the function is the same, a training from there is another.
"""

import copy
import io
from functools import partial

import torch
from torch import Tensor

from regard.core import Mask, Mixer, UnsupportedError
from regard.nn import Heads
from regard.nn.given_heads import packed, with_given_heads
from regard.testing.resetting import require_reset
from regard.testing.subject import B, Subject, T, require, require_close
from regard.testing.verdicts import LawError

BOUND = 1e-10  # float64, relative
GIVEN = "q, k and v given (a part that reads tokens past `heads` is named in `beside_heads`)"


def law(subject: Subject) -> None:
    mixer = subject.make(seed=1)
    mask = Mask(causal=not subject.can.bidirectional)
    x = subject.tokens(B, T)
    y = mixer(x, mask=mask)
    other = subject.make(seed=2)
    other.load_state_dict(mixer.state_dict())
    require(torch.equal(other(x, mask=mask), y), "a state dict does not restore the function")
    clone = copy.deepcopy(mixer)
    require(torch.equal(clone(x, mask=mask), y), "a deep copy is another function")
    require(clone.options == mixer.options, "a deep copy loses the options")
    _given_heads(subject, mixer)
    call = partial(_outputs, x=x.float(), mask=mask)
    require_reset(subject.factory, call, other_starts=subject.cannot_judge)
    stored = io.BytesIO()
    torch.save(mixer, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=False)
    require(torch.equal(loaded(x, mask=mask), y), "a pickled copy is another function")
    elsewhere = "cuda" if torch.cuda.is_available() else "meta"
    moved = mixer.to(elsewhere)
    got = moved(x.to(elsewhere), mask=mask)
    require(
        got.device.type == elsewhere and got.shape == y.shape,
        f"on {elsewhere}: a tensor stays behind",
    )
    if elsewhere == "cuda":
        require((got.cpu() - y).abs().max() < 1e-10, "on cuda: another function")


def _outputs(mixer: Mixer, x: Tensor, mask: Mask) -> list[Tensor]:
    """Before and after `after_step`, which may use more than the state dict holds."""
    y = mixer(x, mask=mask)
    mixer.after_step()
    return [y, mixer(x, mask=mask)]


@torch.no_grad()
def _given_heads(subject: Subject, mixer: Mixer) -> None:
    """Over q, k and v that somebody else projected, as in `regard.nn.MultiheadAttention`: the same function, or refused."""
    try:
        given = with_given_heads(mixer)
    except UnsupportedError:
        return
    heads, x = mixer.heads, subject.tokens(B, T)
    assert isinstance(heads, Heads) and heads.key is not None
    key, tokens = heads.key, packed(given, heads.query(x), heads.key(x), heads.value(x))
    for request in subject.requests():
        mask, own, q, context = request.mask, request.context, tokens, None
        if own is not None:
            q = packed(given, heads.query(x))
            context = packed(given, None, key(own), heads.value(own))
        try:
            mixed = given(q, context=context, mask=mask)
        except Exception as error:
            raise LawError(f"{GIVEN}: {type(error).__name__}: {error}") from error
        y = heads.out(mixed) * (mixed != 0).any(-1, keepdim=True)  # zero where nothing is seen
        require_close(y, request(mixer, x), BOUND, f"{GIVEN}: {request.label}")
    if subject.can.streaming == "exact":
        state, parts = given.initial_state(B), []
        for part in tokens.split((5, 1, T - 6), dim=1):
            y, state = given.extend(part, state)
            parts.append(y)
        expected = given(tokens, mask=Mask(causal=True))
        require_close(torch.cat(parts, dim=1), expected, BOUND, f"{GIVEN}: extend")
