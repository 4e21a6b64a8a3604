"""One sequence over several ranks: each holds its part, and mixers exchange what they need of the others.

    with sequence(model, group):              # the same model on every rank
        loss = loss_of(model(x_local))        # rank r's part of model(x); parts are in the order of the ranks
        loss.backward()                       # on every rank, in the block; gradients of parameters are to be summed over the group

`torch.autograd.grad` in its place may leave an exchange out, for which other ranks wait.
Parts may be of any lengths; a rank without tokens gives one that is not `valid`. The ways, which `way_of` chooses from:

    "halo"       sliding windows: a rank gets the tokens that its windows reach beyond its part.
    "state"      causal, where streams are exact: a rank begins with the state in which the one before ends. Ranks compute a layer one
                 after the other, and unlike layers at the same time.
    "context"    in any order, where a query reads nothing of a context but sums, means, slots, or keys and values, which are exchanged.
    "heads"      heads that do not depend on each other: each rank mixes the whole sequence in its part of the heads.
    "tokens"     all else: every rank mixes the whole sequence and keeps its own rows, which is the work of all on each.
"""

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import Any, Literal, NoReturn

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from regard.core import (
    OPEN,
    Mask,
    Mixer,
    OptionError,
    UnsupportedError,
    check_calls,
    check_request,
    clear,
    compacted,
    compaction,
    existing,
    growth,
    permute,
    stamped,
)
from regard.models.decoder import Decoder
from regard.models.tokens import Numbers, Places, Tokens, Valid
from regard.models.two_streams import TwoStreamLayer
from regard.nn.centroids import Centroids
from regard.nn.heads import alone
from regard.nn.recorded import outermost
from regard.parallel.exchange import (
    decoded,
    exchanged,
    extend,
    gathered,
    placed,
    summed,
    whole_mask,
    with_all_channels,
    with_all_tokens,
)
from regard.parallel.ranks import Ranks
from regard.parallel.tensor import independent_heads, tensor_plan

Way = Literal["halo", "state", "context", "heads", "tokens"]

SENT_ONCE = ("sums", "means", "slots")
"""Kinds of exchange whose size does not grow with the tokens."""


def way_of(mixer: Mixer, mask: Mask = OPEN, *, cross: bool = False, size: int = 2) -> Way:
    """Says how ranks exchange for such requests; cross: with a context, which is cut as well; size: number of ranks.

    Raises UnsupportedError where no way gives what one process gives.
    """
    if mixer.training and any(isinstance(part, Centroids) for part in mixer.modules()):
        raise UnsupportedError(
            f"{mixer.name} does not support training on parts of a sequence: its centroids would count a token once for "
            "each rank. Call eval(), or give whole sequences."
        )
    can = mixer.capabilities
    plain = mask.pairwise is None and mask.global_tokens is None
    exact = plain and can.streaming == "exact"
    if exact and not cross and can.exchange == "halo":
        return "halo"
    streams = exact and mask.causal and not cross
    if streams and not growth(can.state or "T", 2, 4):
        return "state"
    whole = mask.pairwise is None and mask.documents is None
    reads = not mask.causal and whole and (exact or can.exchange == "slots")
    reads = reads and can.exchange in (*SENT_ONCE, "keys")
    heads = independent_heads(mixer)
    divides = heads and heads.num_heads % size == heads.num_kv_heads % size == 0
    if heads and whole and divides and not (reads and can.exchange in SENT_ONCE):
        layers = (heads.query, heads.key, heads.value, heads.out)
        if all(layer is None or alone(layer) for layer in layers):
            return "heads"
    return "state" if streams else "context" if reads else "tokens"


def elements(mixer: Mixer, length: int, mask: Mask = OPEN, *, size: int = 2) -> float:
    """Returns the most elements that one of `size` >= 2 ranks sends to all others for a row of `length` tokens, forward; twice as many at most backward.

    mask: as for `way_of`, without a context. A halo is no longer than a part.
    """
    way = way_of(mixer, mask, size=size)
    exchange = mixer.capabilities.exchange
    if way in ("state", "context"):
        x = next(mixer.parameters()).new_zeros(1, length, mixer.dim)
        if way == "state":
            kept = mixer.extend(x, mixer.initial_state(1))[1]
        elif exchange == "slots":
            kept = _in_slots(mixer, x, None, torch.tensor([[length]]), 0)
        else:
            kept = mixer.initial_state(1, context=x).kept
        leaves = filter(torch.is_tensor, pytree.tree_leaves(kept))
        numbers = [z.numel() for z in leaves if z.is_floating_point()]
        weights = (size - 2) * numbers[-1] if exchange == "means" and way == "context" else 0
        return sum(numbers) * (2 if way == "context" and exchange in SENT_ONCE else 1) + weights
    known = {"halo": 2 * (getattr(mixer, "reach", 0) or 0), "heads": 4 * length / size}
    return known.get(way, length) * mixer.dim


class Sharded(ExitStack):
    """A model whose mixers exchange with other ranks, until `remove()` or the end of the block."""

    remove = ExitStack.close


def sequence(model: nn.Module, group: Any = None) -> Sharded:
    """Let model(x_local) be this rank's part of model(x).

    group: a torch.distributed.ProcessGroup, None (all processes), or an object with the methods of `regard.parallel.ranks.Ranks`.
    Masks are cut as x is: `pairwise` along the queries alone. All ranks give the same fields, but for `valid`.

    Raises OptionError for a group that this process is not part of, and for a model without a mixer or cut already, UnsupportedError for two streams.
    """
    ranks = _ranks(group)
    # An inner mixer gets what the outer one has gathered.
    mixers = {mixer for _, mixer in outermost(model)}
    if not mixers or any("forward" in vars(mixer) for mixer in mixers):
        why = "its mixers have a forward of their own already" if mixers else "it has no mixer"
        raise OptionError(f"regard.parallel.sequence cannot cut {type(model).__name__}: {why}")
    if any(isinstance(module, TwoStreamLayer) for module in model.modules()):
        raise UnsupportedError(
            f"{type(model).__name__} does not support regard.parallel.sequence: its second stream is not exchanged"
        )
    sharded = Sharded()
    for mixer in mixers:
        _replaced(sharded, mixer, "forward", _forward(mixer, ranks, mixer.forward))
    for module in model.modules():
        if hasattr(module, "initial_state") and not isinstance(module, Mixer):
            _replaced(sharded, module, "extend", partial(_unshared, type(module).__name__))
        if isinstance(module, Decoder):
            _replaced(sharded, module, "forward", partial(decoded, ranks, module.forward))
        if isinstance(module, Places):
            hook = module.register_forward_hook(lambda _, given, at: placed(ranks, *given))
            sharded.callback(hook.remove)
    return sharded


def next_tokens(
    tokens: Tokens, group: Any = None, *, valid: Valid = None, documents: Numbers = None
) -> Tokens:
    """Returns targets of a causal model for this rank's part: at each token the next valid one of its row, or of its document.

    -100, which `cross_entropy` leaves out, where there is none and at padding. All ranks call it at the same time, and send
    the first valid token of each row. group: as for `sequence`.
    """
    ranks, length = _ranks(group), tokens.shape[1]
    valid = existing(tokens, valid)
    documents = torch.zeros_like(tokens) if documents is None else documents
    # The last column holds no token.
    facts = F.pad(torch.stack((tokens.long(), documents.long(), valid.long())), (0, 1))
    first = facts.take_along_dim(valid.long().argmax(1)[None, :, None], 2)
    later = gathered(ranks, first, 2, [1] * ranks.size)[..., ranks.rank + 1 :]
    facts = torch.cat((facts[..., :-1], later, facts[..., -1:]), 2)
    columns = torch.arange(facts.shape[2], device=tokens.device)
    columns = columns.where(facts[2] > 0, columns[-1])
    after = columns.flip(1).cummin(1).values.flip(1)[:, 1 : length + 1]
    token, document, found = facts.take_along_dim(after[None], 2)
    return token.where(valid & (found > 0) & (document == documents), -100)


def _ranks(group: Any) -> Any:
    return group if hasattr(group, "receive") else Ranks(group)


def _unshared(name: str, *_: Any, **__: Any) -> NoReturn:
    raise UnsupportedError(
        f"{name} does not support regard.parallel.sequence where it goes on from a state, which each rank would take for its "
        "own part's: give whole sequences to a model that has a forward without one"
    )


def _forward(mixer: Any, ranks: Ranks, whole: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def forward(x: Tensor, *, context: Tensor | None = None, mask: Mask = OPEN) -> Tensor:
        check_request(mixer, x, context, replace(mask, pairwise=None))
        cross = context is not None
        way = way_of(mixer, mask, cross=cross, size=ranks.size) if len(x) else "tokens"
        if way == "halo":
            return _by_halo(whole, ranks, x, mask, mixer.reach)
        if way == "heads":
            return _by_heads(mixer, ranks, x, context, mask)
        if way == "state":
            state = None if ranks.rank else mixer.initial_state(len(x))
            return extend(mixer, ranks, x, state, valid=mask.valid, documents=mask.documents)[0]
        if way == "context":
            return _by_context(mixer, ranks, x, context, mask.valid)
        return _by_tokens(whole, ranks, x, context, mask)

    return forward


def _by_context(
    mixer: Any, ranks: Ranks, x: Tensor, context: Tensor | None, valid: Valid
) -> Tensor:
    source = x if context is None else context
    exchange = mixer.capabilities.exchange
    lengths = ranks.facts(source.shape[1])
    if exchange == "slots":
        mixer._check_length("length", sum(lengths))
        count = existing(source[..., 0], valid).sum(1)
        counts = torch.tensor(ranks.facts(count.tolist()))
        k, v, taken = _in_slots(mixer, source, valid, counts, ranks.rank)
        kept: Any = (summed(ranks, k), summed(ranks, v), taken)
        some = (counts.sum(0)[:, None] > 0).to(x.device)
        answered = some if context is not None or valid is None else valid
        return mixer._merge(x, mixer._read(x, kept, None)) * answered[..., None]
    own = mixer.initial_state(len(x), context=source, valid=valid)
    if exchange == "sums":
        kept = tuple(summed(ranks, z) for z in own.kept)
    elif exchange == "means":
        mean, weight = own.kept
        every = gathered(ranks, weight[..., None], 3, [1] * ranks.size).logsumexp(-1)
        kept = summed(ranks, mean * (weight - every).exp()[..., None]), every
    else:
        kept = tuple(gathered(ranks, z, 2 if z.ndim == 4 else 1, lengths) for z in own.kept)
    answered = gathered(ranks, own.answered, 1, [1] * ranks.size).any(1, keepdim=True)
    state = stamped(replace(own, kept=kept, answered=answered), mixer._owner, 0)
    return mixer.extend(x, state, valid=valid if context is None else None)[0]


def _in_slots(mixer: Any, source: Tensor, valid: Tensor | None, counts: Tensor, rank: int) -> Any:
    """What this rank's tokens add to slots; counts [w B]: valid tokens of all."""
    order = compaction(existing(source[..., 0], valid))
    place = counts[:rank].sum(0)[:, None] + torch.arange(source.shape[1])
    count, device = counts.sum(0), source.device
    at = place.to(device), count.to(device), int(count.max())
    return mixer._in_slots(order.of(source), order.valid, *at)


def _by_tokens(
    whole: Callable[..., Tensor], ranks: Ranks, x: Tensor, context: Tensor | None, mask: Mask
) -> Tensor:
    lengths, keys, mask = whole_mask(ranks, x, x if context is None else context, mask)
    if context is not None:
        context = gathered(ranks, context, 1, keys)
    y = whole(gathered(ranks, x, 1, lengths), context=context, mask=mask)
    return y.split(lengths, 1)[ranks.rank]


def _by_heads(mixer: Any, ranks: Ranks, x: Tensor, context: Tensor | None, mask: Mask) -> Tensor:
    """All-to-all from a part of the tokens to a part of the heads, and back (Jacobs et al. 2023, arXiv 2309.14509)."""
    source = x if context is None else context
    heads = mixer.heads
    valid = mask.valid
    lengths, keys, mask = whole_mask(ranks, x, source, mask)
    empty = x.new_zeros(len(x), sum(lengths), 1)  # the mixer reads its heads alone
    other = None if context is None else x.new_zeros(len(x), sum(keys), 1)
    request = compacted(mixer, empty, other, mask)
    source = source if valid is None else clear(source, valid)
    x = source if context is None else x
    with ExitStack() as held:
        for projection, z, counts, order in (
            (heads.query, x, lengths, request.queries),
            (heads.key, source, keys, request.keys),
            (heads.value, source, keys, request.keys),
        ):
            if projection is not None:
                part = with_all_tokens(ranks, projection(z), counts)
                part = part if order is None else order.of(part)
                _replaced(held, projection, "forward", lambda x, part=part: part)
        _replaced(held, heads.out, "forward", lambda x: x)
        y = request.restore_output(mixer.mix(request.x, request.context, request.mask))
    answered = request.restore_output(empty + 1)
    y = heads.out(with_all_channels(ranks, y, lengths))
    return y * answered.split(lengths, 1)[ranks.rank]


class _Replaced:
    """A method in another's place, which a copy of the module would share."""

    def __init__(self, method: Callable):
        self.method = method

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.method(*args, **kwargs)

    def __reduce_ex__(self, _: object) -> NoReturn:
        raise UnsupportedError(
            "regard.parallel.sequence does not support copies of a model that it cuts: copy or pickle it before or after"
        )


def _replaced(held: ExitStack, module: nn.Module, name: str, method: Callable) -> None:
    """The module's method of this name is another one while `held` is open."""
    vars(module)[name] = _Replaced(method)
    held.callback(vars(module).pop, name)


def _by_halo(
    whole: Callable[..., Tensor], ranks: Ranks, x: Tensor, mask: Mask, reach: int
) -> Tensor:
    """The mixer on this rank's tokens between the nearest of the other ranks, `reach` valid ones to each side of a row."""
    rank = ranks.rank
    order = compaction(existing(x[..., 0], mask.valid))
    counts = torch.tensor(ranks.facts(order.valid.sum(1).tolist()), device=x.device)  # [w B]

    def near(a: int, b: int) -> Tensor:
        """Columns [B n] of the compact tokens of rank a that rank b may see."""
        between = counts[min(a, b) + 1 : max(a, b)].sum(0)
        n = 0 if a > b and mask.causal else max(0, reach - min(between.tolist(), default=0))
        n = x.shape[1] if a == b else min(n, max(counts[a].tolist(), default=0))
        first = counts[a, :, None] - n if a < b else counts[a, :, None] * 0
        return first + torch.arange(n, device=x.device)

    found = [near(a, rank) for a in range(ranks.size)]
    shapes = [columns.shape for columns in found]

    def spread(z: Tensor) -> Tensor:
        z = order.of(z)
        inside = (near(rank, b).clamp(0, z.shape[1] - 1) for b in range(ranks.size))
        parts = [z.take_along_dim(columns[..., None], 1) for columns in inside]
        return torch.cat(exchanged(ranks, parts, [(*one, z.shape[2]) for one in shapes]), 1)

    pairs = zip(found, counts, strict=True)
    fields: dict[str, Any] = {
        "valid": torch.cat([(at >= 0) & (at < n[:, None]) for at, n in pairs], 1)
    }
    if mask.documents is not None:
        fields["documents"] = spread(mask.documents[..., None])[..., 0]
    y = whole(spread(x), mask=Mask(mask.causal, **fields))
    return permute(y.split([one[1] for one in shapes], 1)[rank], order.target)


__all__ = [
    "Ranks", "Sharded", "elements", "extend", "next_tokens", "sequence", "tensor_plan", "way_of",
]  # fmt: skip
check_calls(globals(), {*__all__} - {"extend"})  # to which a test gives ranks of its own
