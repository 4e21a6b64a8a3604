"""A call is a function of its arguments: of no call before or beside it, no copy, no device and no memory."""

import io
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from functools import partial
from threading import get_ident

import torch
from torch import Tensor
from torch.utils._pytree import tree_leaves
from torch.utils.checkpoint import checkpoint

from regard.core import Mask, Mixer, UnsupportedError
from regard.nn import Heads
from regard.nn.given_heads import packed, with_given_heads
from regard.testing.laws.streaming import require_streamed
from regard.testing.resetting import require_reset
from regard.testing.subject import (
    B,
    LawError,
    Subject,
    T,
    Tensors,
    require,
    require_close,
    require_same,
    results,
)

BOUND = 1e-10  # float64, relative
GIVEN = "q, k and v given (a part that reads tokens past `heads` is named in `beside_heads`)"


def randomness(subject: Subject) -> None:
    """Same seed, same result; evaluation leaves the global generator alone; recomputation is identical; forward is pure.

    In training, where chance takes no part, a mixer is what it is in evaluation.
    """
    mixer = subject.make(seed=3)
    twin = subject.make(seed=3)
    mask = subject.mask
    x = subject.x
    y = mixer(x, mask=mask)
    require(torch.equal(y, twin(x, mask=mask)), "two mixers of one seed differ")
    generator = torch.get_rng_state()
    require(torch.equal(y, mixer(x, mask=mask)), "evaluation gives two results for one input")
    require(torch.equal(generator, torch.get_rng_state()), "evaluation moves the global generator")
    stored = deepcopy(mixer.state_dict())
    for mode in (False, True):
        mixer.train(mode)(x, mask=mask)
        changed = [k for k, z in mixer.state_dict().items() if not torch.equal(z, stored[k])]
        require(not changed, f"forward changes {changed}; only after_step may")
    for request in subject.requests():
        leaves = tree_leaves((x, request.context, request.mask))
        given = [z for z in leaves if isinstance(z, Tensor)]
        before = [z.clone() for z in given]
        request(mixer, x)
        same = all(map(torch.equal, before, given))
        require(same, f"{request.label}: forward changes what it is given")
    trained = []
    for seed in (1, 2):
        torch.manual_seed(seed)
        trained.append(mixer(x, mask=mask))
    if torch.equal(*trained):
        for request in subject.requests():
            learning, judging = (request(mixer.train(mode), x) for mode in (True, False))
            what = f"{request.label}: training, where chance takes no part"
            require_close(learning, judging, BOUND, what)
    mixer.train()
    x.requires_grad_()
    call = partial(mixer, mask=mask)
    found = []
    for run in (call, partial(checkpoint, call, use_reentrant=False)):
        torch.manual_seed(9)
        found.append(results(mixer, run(x), x=x))
    for name, plain in found[0].items():
        same = torch.equal(plain, found[1][name])
        require(same, f"gradient checkpointing changes a result: {name}")


def threads(subject: Subject) -> None:
    """The result of a call does not depend on calls in other threads: `forward` and `observe` side by side."""
    mixer = subject.make(blocks="own")
    seen, other = (
        partial(_seen, mixer, z, subject.mask) for z in (subject.x, subject.tokens(B, T, seed=1))
    )
    alone = seen()
    others = other()
    own = get_ident()
    beside = []
    with ThreadPoolExecutor(1) as second:

        def interrupted(method):
            """The method, with a second thread's calls before and after it."""

            def call(*request):
                if get_ident() != own:
                    return method(*request)
                beside.append(second.submit(other).result())
                result = method(*request)
                beside.append(second.submit(other).result())
                return result

            return call

        for name in ("mix", "_observe"):
            setattr(mixer, name, interrupted(getattr(mixer, name)))
        among = seen()
    cases = [(among, alone, "beside another thread's calls")]
    cases += [(found, others, "within another thread's call") for found in beside]
    for found, expected, where in cases:
        require(found.keys() == expected.keys(), f"{where}: other results than alone")
        require_same(found, expected, 1e-12, where)


def _seen(mixer: Mixer, x: Tensor, mask: Mask) -> Tensors:
    found = {"forward": mixer(x, mask=mask)}
    for weights in (True, False):
        seen = mixer.observe(x, mask=mask, weights=weights)._asdict()
        kept = {name: z for name, z in seen.items() if z is not None}
        found |= {f"observe(weights={weights}): {name}": z for name, z in kept.items()}
    return found


def transfer(subject: Subject) -> None:
    """State dict round trip, deepcopy, pickle, device move, and queries, keys and values made elsewhere keep the function.

    Built on the meta device, `to_empty` and `reset_parameters` of every part leave nothing of the memory's content. A parameter that
    starts elsewhere than construction has it is noted: the function is the same, a training from there is another.
    """
    mixer = subject.make(seed=1)
    other = subject.make(seed=2)
    mask = subject.mask
    x = subject.x
    y = mixer(x, mask=mask)
    other.load_state_dict(mixer.state_dict())
    clone = deepcopy(mixer)
    stored = io.BytesIO()
    require(clone.options == mixer.options, "a deep copy loses the options")
    torch.save(mixer, stored)
    stored.seek(0)
    loaded = torch.load(stored, weights_only=False)
    copies = {"a state dict": other, "a deep copy": clone, "a pickled copy": loaded}
    for what, twin in copies.items():
        require(torch.equal(twin(x, mask=mask), y), f"{what} is another function")
    _given_heads(subject, mixer)

    def outputs(built: Mixer) -> list[Tensor]:
        """Before and after `after_step`, which may use more than the state dict holds."""
        y = built(x.float(), mask=mask)
        built.after_step()
        return [y, built(x.float(), mask=mask)]

    require_reset(subject.factory, outputs, other_starts=subject.cannot_judge)
    elsewhere = "cuda" if torch.cuda.is_available() else "meta"
    got = mixer.to(elsewhere)(x.to(elsewhere), mask=mask)
    stays = got.device.type == elsewhere and got.shape == y.shape
    require(stays, f"on {elsewhere}: a tensor stays behind")
    if elsewhere == "cuda":
        require_close(got.cpu(), y, BOUND, "on cuda")


@torch.no_grad()
def _given_heads(subject: Subject, mixer: Mixer) -> None:
    """`attend`, with q, k and v that somebody else projected, as in `regard.nn.MultiheadAttention`: the same function, or refused."""
    try:
        given = with_given_heads(mixer)
    except UnsupportedError:
        return
    heads = mixer.heads
    x = subject.x
    assert isinstance(heads, Heads) and heads.key is not None
    key = heads.key
    tokens = packed(given, heads.query(x), heads.key(x), heads.value(x))
    for request in subject.requests():
        mask = request.mask
        own = request.context
        q = tokens
        context = None
        if own is not None:
            q = packed(given, heads.query(x))
            context = packed(given, None, key(own), heads.value(own))
        try:
            mixed = given(q, context=context, mask=mask)
        except Exception as error:
            raise LawError(f"{GIVEN}: {type(error).__name__}: {error}") from error
        y = heads.out(mixed) * (mixed != 0).any(-1, keepdim=True)  # zero where nothing is seen
        require_close(y, request(mixer, x), BOUND, f"{GIVEN}: {request.label}")
    if subject.streams:
        require_streamed(given, tokens, (5, 1, T - 6), f"{GIVEN}: extend")
