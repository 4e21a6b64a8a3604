"""Exchanges between ranks that autograd goes through: the gradient of each is the exchange that goes the other way."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from regard.core import Mask, Mixer, ShapeError, compaction, existing, permute
from regard.models.tokens import Numbers, Valid, places
from regard.parallel.ranks import Ranks

Exchange = Callable[..., tuple[Tensor, ...]]
FIELDS = ("pairwise", "global_tokens", "documents")


class Exchanged(torch.autograd.Function):
    """there(*z); `back` is its adjoint."""

    @staticmethod
    def forward(ctx: Any, there: Exchange, back: Exchange, *z: Tensor) -> tuple[Tensor, ...]:
        ctx.exchanges = back, there
        ctx.save_for_backward(z[0].new_empty(0))  # a checkpoint recomputes up to the last saved one
        return there(*z)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        _ = ctx.saved_tensors  # the recomputation, whose exchanges come first
        return None, None, *Exchanged.apply(*ctx.exchanges, *gradients)


def exchanged(
    ranks: Ranks, parts: Sequence[Tensor], shapes: Sequence[Sequence[int]]
) -> tuple[Tensor, ...]:
    """`Ranks.exchange`; gradients go back to the ranks that sent the parts."""

    def receiving(shapes: Sequence[Sequence[int]]) -> Exchange:
        return lambda *z: tuple(ranks.exchange(z, shapes))

    return Exchanged.apply(receiving(shapes), receiving([z.shape for z in parts]), *parts)


def gathered(ranks: Ranks, z: Tensor, dim: int, lengths: Sequence[int]) -> Tensor:
    """The parts of all ranks along `dim`, of these lengths."""
    shapes = [[*z.shape[:dim], length, *z.shape[dim + 1 :]] for length in lengths]
    return torch.cat(exchanged(ranks, [z] * ranks.size, shapes), dim)


def with_all_tokens(ranks: Ranks, z: Tensor, lengths: Sequence[int]) -> Tensor:
    """This rank's part of the channels [B T D / w] of all ranks' tokens, from all channels of its own [B t D]."""
    parts = z.chunk(ranks.size, 2)
    shapes = [[len(z), length, parts[0].shape[2]] for length in lengths]
    return torch.cat(exchanged(ranks, parts, shapes), 1)


def with_all_channels(ranks: Ranks, z: Tensor, lengths: Sequence[int]) -> Tensor:
    """The way back."""
    parts = z.split(lengths, 1)
    return torch.cat(exchanged(ranks, parts, [parts[ranks.rank].shape] * ranks.size), 2)


def placed(ranks: Ranks, tokens: Tensor, valid: Valid, documents: Numbers = None) -> Tensor:
    """Positions of this rank's tokens in the whole sequence."""
    lengths = ranks.facts(tokens.shape[1])
    valid = gathered(ranks, existing(tokens, valid), 1, lengths)
    documents = documents if documents is None else gathered(ranks, documents, 1, lengths)
    return places(valid, valid, documents).split(lengths, 1)[ranks.rank]


def decoded(
    ranks: Ranks, whole: Callable[..., Tensor], x: Tensor, context: Tensor, *, valid: Valid = None, context_valid: Valid = None
) -> Tensor:  # fmt: skip
    """A cross mixer may read where a query is among the valid ones: padding goes behind them all, over the ranks."""
    lengths = ranks.facts(x.shape[1])
    order = compaction(gathered(ranks, existing(x[..., 0], valid), 1, lengths))
    x, valid = (
        z.split(lengths, 1)[ranks.rank]
        for z in (order.of(gathered(ranks, x, 1, lengths)), order.valid)
    )
    y = gathered(ranks, whole(x, context, valid=valid, context_valid=context_valid), 1, lengths)
    return permute(y, order.target).split(lengths, 1)[ranks.rank]


def whole_mask(
    ranks: Ranks, x: Tensor, source: Tensor, mask: Mask
) -> tuple[Sequence[int], Sequence[int], Mask]:
    """Lengths of the parts of x and of its keys' source, and the mask of all."""
    fields = {n: z for n in FIELDS if (z := getattr(mask, n)) is not None}
    shape = None if mask.pairwise is None else tuple(mask.pairwise.shape)
    facts = ranks.facts((x.shape[1], source.shape[1], mask.valid is not None, [*fields], shape))
    lengths, keys, padded, names, shapes = zip(*facts, strict=True)
    if any(others != [*fields] for others in names):
        raise ShapeError(
            f"regard.parallel: all ranks must give the same fields of a mask, got {names}"
        )
    wanted = [(length, sum(keys)) for length in lengths]
    if shape is not None and [(*one[2:],) for one in shapes] != wanted:
        raise ShapeError(
            f"regard.parallel: mask.pairwise must be [B|1, H|1, T, S] of a rank's queries and of all keys, [T, S] = {wanted}, got "
            f"{[*shapes]}"
        )
    if any(padded):
        fields["valid"] = existing(source[..., 0], mask.valid)
    for name, z in fields.items():
        fields[name] = gathered(ranks, z, *((2, lengths) if name == "pairwise" else (1, keys)))
    return lengths, keys, Mask(mask.causal, **fields)


def summed(ranks: Ranks, z: Tensor) -> Tensor:
    def total(z: Tensor) -> tuple[Tensor]:
        return (ranks.total(z),)

    return Exchanged.apply(total, total, z)[0]


def extend(mixer: Mixer, ranks: Ranks, x: Tensor, state: Any, **tokens: Any) -> tuple[Tensor, Any]:
    """`mixer.extend` of this rank's tokens, from the state in which the rank before ends; `state`: before the first rank's.

    The last rank's new state is that after the whole sequence.
    """
    if ranks.rank > 0:
        x, state = _received(ranks, x)
    y, state = mixer.extend(x, state, **tokens)
    if ranks.rank + 1 < ranks.size:
        y = _sent(ranks, y, state)
    return y, state


def _sent(ranks: Ranks, y: Tensor, state: Any) -> Tensor:
    """y; its gradient passes when that of the state, which goes to the next rank, has come back."""
    to = ranks.rank + 1
    leaves, structure = pytree.tree_flatten(state)
    numbers = [z for z in leaves if z.is_floating_point()]
    differentiable = torch.is_grad_enabled() and any(z.requires_grad for z in (y, *numbers))
    facts = [z.detach().to("meta" if z.is_floating_point() else "cpu") for z in leaves]
    ranks.send((pytree.tree_unflatten(facts, structure), differentiable), [], to)

    def there(y: Tensor, *numbers: Tensor) -> tuple[Tensor]:
        ranks.send(None, numbers, to)
        return (y.view_as(y),)

    def back(gradient: Tensor) -> tuple[Tensor, ...]:
        return gradient, *ranks.receive(to, gradient.device)[1]

    return Exchanged.apply(there, back, y, *numbers)[0]


def _received(ranks: Ranks, x: Tensor) -> tuple[Tensor, Any]:
    """x, and the state in which the rank before ends; its gradient goes back when x's passes, even if that is zero."""
    source = ranks.rank - 1
    (state, differentiable), _ = ranks.receive(source, x.device)

    def there(x: Tensor) -> tuple[Tensor, ...]:
        return x.view_as(x), *ranks.receive(source, x.device)[1]

    def back(gradient: Tensor, *gradients: Tensor) -> tuple[Tensor]:
        ranks.send(None, gradients, source)
        return (gradient.view_as(gradient),)

    if differentiable and not x.requires_grad:
        x = x.detach().requires_grad_()
    x, *numbers = Exchanged.apply(there, back, x) if differentiable else there(x)
    leaves, structure = pytree.tree_flatten(state)
    found = iter(numbers)
    leaves = [next(found) if z.is_meta else z.to(x.device) for z in leaves]
    return x, pytree.tree_unflatten(leaves, structure)
